package gpustate

import (
	"context"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// pinFrom is how many bytes of contents are worth staging memory that is pinned:
// allocating that takes as long as copying several times as much from plain
// memory.
const pinFrom = 64 << 20

// uploads are the jobs that write an object's bytes, which fill provides, unpinned
// through plain memory.
func (e *entry) uploads(fill func(dst []byte, off int64) error, unpinned bool) []job {
	switch owner := e.owner.(type) {
	case *HostBuffer:
		return []job{func(context.Context, *lane) error { return inPieces(owner.bytes, fill) }}
	case *Shared:
		return []job{func(ctx context.Context, l *lane) error {
			if l.far() {
				return e.upload(ctx, l, fill, 0, e.obj.Mem.Bytes, unpinned)
			}
			return e.fail("write contents of", l.mapped(e.h, func(b []byte) error { return inPieces(b, fill) }))
		}}
	case *Image:
		return e.imageUploads(fill)
	}
	var jobs []job
	for off := int64(0); off < e.obj.Mem.Bytes; off += jobBytes {
		jobs = append(jobs, func(ctx context.Context, l *lane) error {
			return e.upload(ctx, l, fill, off, min(jobBytes, e.obj.Mem.Bytes-off), unpinned)
		})
	}
	return jobs
}

// upload writes n bytes of linear memory from off on.
func (e *entry) upload(ctx context.Context, l *lane, fill func([]byte, int64) error, off, n int64,
	unpinned bool) error {
	return l.up(ctx, upload{off: off, bytes: n, step: pieceBytes, unpinned: unpinned, fill: fill,
		write: func(q driver.Handle, off int64, src []byte, block bool) (driver.Event, error) {
			ev, err := l.drv.Write(q, e.h, off, src, block, nil)
			return ev, e.fail("write contents of", err)
		}})
}

// inPieces fills memory piece by piece.
func inPieces(b []byte, fill func(dst []byte, off int64) error) error {
	for off := 0; off < len(b); off += pieceBytes {
		if err := fill(b[off:min(off+pieceBytes, len(b))], int64(off)); err != nil {
			return err
		}
	}
	return nil
}

// imageUploads writes an image slab by slab.
func (e *entry) imageUploads(fill func(dst []byte, off int64) error) []job {
	var jobs []job
	for _, s := range slabs(e.obj.Mem, pieceBytes) {
		jobs = append(jobs, func(_ context.Context, l *lane) error {
			host := make([]byte, s.bytes)
			if err := fill(host, s.off); err != nil {
				return err
			}
			_, err := l.drv.WriteImage(l.q, e.h, s.region, host, true, nil)
			return e.fail("write contents of", err)
		})
	}
	return jobs
}
