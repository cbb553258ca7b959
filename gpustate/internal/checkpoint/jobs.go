package checkpoint

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// job is one piece of work for a copier.
type job func(ctx context.Context, cp *copier) error

// jobBytes is how much of an object one copier moves before another may go on
// with it.
const jobBytes = 64 << 20

// run does all jobs on all copiers and returns the errors of those that failed;
// the first failure keeps the ones that have not begun from beginning.
func (s *Session) run(ctx context.Context, jobs []job) error {
	return s.runAs(ctx, func(add func(jobs ...job)) error {
		add(jobs...)
		return nil
	})
}

// runAs is run of the jobs that find adds, while they are added. When find fails, those that have not begun do not
// begin.
func (s *Session) runAs(ctx context.Context, find func(add func(jobs ...job)) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var waiting []job // guarded by mu, like the fields below
	var copiers int   // that serve
	var errs []error
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
		cancel(err)
	}
	next := func() job { // nil: the copier stops serving
		mu.Lock()
		defer mu.Unlock()
		if len(waiting) == 0 || ctx.Err() != nil { // another copier failed and has the reason
			copiers--
			return nil
		}
		j := waiting[0]
		waiting = waiting[1:]
		return j
	}
	found := false
	err := find(func(jobs ...job) {
		mu.Lock()
		defer mu.Unlock()
		waiting, found = append(waiting, jobs...), found || len(jobs) > 0
		for range min(len(waiting), s.width()-copiers) {
			copiers++
			wg.Go(func() {
				if err := s.serve(ctx, next); err != nil {
					fail(err)
				}
			})
		}
	})
	if err != nil {
		fail(err)
	}
	wg.Wait()
	if len(errs) == 0 && found && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(errs...)
}

// serve does jobs on one copier.
func (s *Session) serve(ctx context.Context, next func() job) error {
	cp, err := s.take(&s.jobs)
	if err != nil {
		return err
	}
	defer s.jobs.give(cp)
	for j := next(); j != nil; j = next() {
		if err := j(ctx, cp); err != nil {
			return err
		}
	}
	return nil
}

// downloads returns the jobs that bring len(dst) bytes of an object from off on to
// the host; an image whole, in slabs of rows or slices.
func downloads(e *object.Entry, off int64, dst []byte) (jobs []job) {
	switch {
	case e.Host != nil: // the bytes are here already
		return []job{func(context.Context, *copier) error {
			copy(dst, e.Host.Bytes[off:])
			return nil
		}}
	case e.Record.Mem.Kind.IsImage():
		eachPart(e.Record.Mem, jobBytes, func(from driver.Place, off int64) {
			jobs = append(jobs, func(_ context.Context, cp *copier) error {
				_, err := cp.read(e.Handle, from, dst[off:off+from.Bytes], true)
				return e.Fail("capture", err)
			})
		})
		return jobs
	}
	for len(dst) > 0 {
		piece, at := dst[:min(len(dst), jobBytes)], off
		jobs = append(jobs, func(ctx context.Context, cp *copier) error {
			return e.Fail("capture", cp.down(ctx, e.Handle, at, piece))
		})
		dst, off = dst[len(piece):], off+int64(len(piece))
	}
	return jobs
}

// eachPart divides an image into parts of at most limit bytes, of which off are before a part.
func eachPart(m *record.Mem, limit int64, do func(part driver.Place, off int64)) {
	pixel, _ := record.PixelBytes(m.Image)
	var off int64
	driver.Pixels(driver.Region{Size: m.Image.Extents()}).Divide(pixel, limit, func(part driver.Place, _ [3]int64) {
		do(part, off)
		off += part.Bytes
	})
}

// pinFrom is how many bytes of contents are worth staging memory that is pinned:
// allocating that takes as long as copying several times as much from plain
// memory.
const pinFrom = 64 << 20

// uploads returns the jobs that write an object's bytes, which fill provides, unpinned
// through plain memory.
func (d *State) uploads(e *object.Entry, fill filler, unpinned bool) (jobs []job) {
	write := func(cp *copier, to driver.Place, src []byte, block bool) (driver.Event, error) {
		ev, err := cp.issue(d, func() (driver.Event, error) { return cp.write(e.Handle, to, src, block) })
		return ev, e.Fail("write contents of", err)
	}
	switch {
	case e.Host != nil:
		return []job{func(context.Context, *copier) error {
			for b := e.Host.Bytes; len(b) > 0; b = b[min(PieceBytes, len(b)):] {
				to := driver.Bytes(int64(len(e.Host.Bytes)-len(b)), int64(min(PieceBytes, len(b))))
				if err := fill(b[:to.Bytes], to.Off, to); err != nil {
					return err
				}
			}
			return nil
		}}
	case e.Record.Mem.Kind.IsImage():
		eachPart(e.Record.Mem, PieceBytes, func(to driver.Place, off int64) {
			jobs = append(jobs, func(_ context.Context, cp *copier) error {
				host := make([]byte, to.Bytes)
				if err := fill(host, off, to); err != nil {
					return err
				}
				_, err := write(cp, to, host, true)
				return err
			})
		})
		return jobs
	}
	for off := int64(0); off < e.Record.Mem.Bytes; off += jobBytes {
		u := upload{off, min(jobBytes, e.Record.Mem.Bytes-off), fill, write}
		jobs = append(jobs, func(ctx context.Context, cp *copier) error {
			return cp.up(ctx, u, unpinned)
		})
	}
	return jobs
}
