package checkpoint

import (
	"context"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
)

// Share is areas of one memory object, which together are one content without gaps.
type Share struct {
	Entry *object.Entry
	Areas []object.Area
}

// CaptureShares takes a capture of shares and of nothing else. The device is stopped.
func (d *State) CaptureShares(ctx context.Context, shares []Share, alloc func(bytes int) []byte) (*Capture, error) {
	var sources []source
	for _, s := range shares {
		err := s.Entry.Usable(&d.Table)
		for i := 0; i < len(s.Areas) && err == nil; i++ {
			err = s.Areas[i].Check(&d.Table)
		}
		if err != nil {
			return nil, s.Entry.Fail("capture", err)
		}
		sources = append(sources, source{e: s.Entry, bytes: s.bytes(), shadow: true, whole: true, jobs: s.jobs})
	}
	return d.take(ctx, nil, sources, alloc)
}

func (s *Share) bytes() (n int64) {
	for i := range s.Areas {
		n += s.Areas[i].Content()
	}
	return n
}

// jobs copy the boxes to one part, large ones in pieces.
func (s *Share) jobs(to part) (jobs []job) {
	off := int64(0)
	for _, whole := range s.Areas {
		for _, a := range whole.Cut(jobBytes) {
			at := off
			off += a.Content()
			jobs = append(jobs, func(ctx context.Context, cp *copier) error {
				return a.Fail("capture", cp.pack(ctx, a, to, at))
			})
		}
	}
	return jobs
}

// pack copies a box of a buffer to a part, from byte off on, if it has no gaps.
func (cp *copier) pack(ctx context.Context, a object.Area, to part, off int64) error {
	at := a.Size.Packed()
	at.Off = off
	switch {
	case to.host != nil && a.At.IsPacked(a.Size):
		return cp.down(ctx, a.Handle, a.At.Off, to.host[off:off+a.Content()])
	case to.host != nil:
		_, err := cp.drv.Transfer(cp.q, driver.Transfer{Mem: a.Handle, Place: a.Place, Host: to.host, There: at,
			Read: true, Block: true}, nil)
		return err
	}
	at.Off += to.memOff
	return cp.done(cp.drv.Copy(cp.q, to.mem, driver.BoxAt(a.Size, at), a.Handle, a.Place, nil))
}

// Writer writes to areas of a device that is stopped.
type Writer struct {
	d        *State
	cp       *copier
	restored bool // its writes count as restored
}

// Writing has fill write to the device, which is stopped.
func (d *State) Writing(known bool, fill func(w *Writer) error) error {
	d.Filled = true
	cp, err := d.Session.take(&d.Session.jobs)
	if err != nil {
		return err
	}
	defer d.Session.jobs.give(cp)
	return fill(&Writer{d, cp, known})
}

// Write fills an area from src, where it lies as there says.
func (w *Writer) Write(a object.Area, src []byte, there driver.Layout) error {
	err := object.InLayout(there, a.Size, int64(len(src)))
	if err != nil {
		return fmt.Errorf("the host's memory: %w", err)
	}
	if err = a.Check(&w.d.Table); err == nil {
		_, err = w.cp.issue(w.d, func() (driver.Event, error) {
			if a.Size[1]*a.Size[2] == 1 {
				return w.cp.write(a.Handle, driver.Bytes(a.At.Off, a.Size[0]), src[there.Off:there.Off+a.Size[0]], true)
			}
			return w.cp.drv.Transfer(w.cp.q, driver.Transfer{Mem: a.Handle, Place: a.Place, Host: src, There: there,
				Block: true}, nil)
		})
	}
	if err == nil {
		a.Known = w.restored
	}
	return a.Fail("write contents of", err)
}
