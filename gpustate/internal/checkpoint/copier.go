package checkpoint

import (
	"context"
	"errors"
	"runtime"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// copier moves bytes between a device and the host: a queue and two pieces of
// staging memory, so that one piece is in transfer while the other is copied.
// From devices whose memory is the host's, and into pinned memory, it reads
// without staging.
type copier struct {
	drv    driver.Device
	pinned *pinnedMemory
	q      driver.Handle
	stage  [2]driver.Pinned
}

func newCopier(s *Session) (*copier, error) {
	q, err := s.CreateQueue(driver.QueueDesc{})
	if err != nil {
		return nil, err
	}
	return &copier{drv: s.Device, pinned: &s.pinned, q: q}, nil
}

func (cp *copier) close() error {
	var errs []error
	for _, p := range cp.stage {
		if p != nil {
			errs = append(errs, p.Free())
		}
	}
	return errors.Join(append(errs, cp.drv.ReleaseQueue(cp.q))...)
}

// staging gives the two pieces, with room for pieces of n bytes.
func (cp *copier) staging(n int64) (s [2][]byte, err error) {
	for i := range cp.stage {
		if cp.drv.Info().HostMemory && (cp.stage[i] == nil || int64(len(cp.stage[i].Bytes())) < n) {
			cp.stage[i] = driver.Plain(make([]byte, n))
		}
		if cp.stage[i] == nil {
			cp.stage[i], err = cp.drv.AllocPinned(PieceBytes)
			if errors.Is(err, driver.ErrOutOfMemory) { // slower is better than not at all
				cp.stage[i], err = driver.Plain(make([]byte, PieceBytes)), nil
			}
			if err != nil {
				cp.stage[i] = nil
				return s, err
			}
		}
		s[i] = cp.stage[i].Bytes()
	}
	return s, nil
}

// read issues the read of a place, whose bytes are packed.
func (cp *copier) read(mem driver.Handle, from driver.Place, dst []byte, block bool) (driver.Event, error) {
	return cp.drv.Transfer(cp.q, driver.Transfer{Mem: mem, Place: from, Host: dst, Read: true, Block: block}, nil)
}

// write issues the write of a place, whose bytes are packed.
func (cp *copier) write(mem driver.Handle, to driver.Place, src []byte, block bool) (driver.Event, error) {
	return cp.drv.Transfer(cp.q, driver.Transfer{Mem: mem, Place: to, Host: src, Block: block}, nil)
}

// down reads len(dst) bytes of a buffer from off on.
func (cp *copier) down(ctx context.Context, mem driver.Handle, off int64, dst []byte) error {
	if cp.drv.Info().HostMemory {
		if len(dst) == 0 {
			return nil
		}
		_, err := cp.read(mem, driver.Bytes(off, int64(len(dst))), dst, true)
		return err
	}
	n, err := cp.direct(ctx, mem, off, dst)
	if err != nil || n == len(dst) {
		return err
	}
	return cp.staged(ctx, mem, off+int64(n), dst[n:])
}

// direct reads the pinned part at the beginning of dst, and returns its length.
func (cp *copier) direct(ctx context.Context, mem driver.Handle, off int64, dst []byte) (n int, err error) {
	cp.pinned.mu.RLock()
	defer cp.pinned.mu.RUnlock()
	for n < len(dst) {
		k := min(cp.pinned.covered(dst[n:]), jobBytes)
		if k == 0 {
			break
		}
		if err := ctx.Err(); err != nil {
			return n, err
		}
		if err := cp.done(cp.read(mem, driver.Bytes(off+int64(n), int64(k)), dst[n:n+k], false)); err != nil {
			return n, errors.Join(err, cp.drv.Finish(cp.q))
		}
		n += k
	}
	return n, nil
}

// staged reads through the staging memory.
func (cp *copier) staged(ctx context.Context, mem driver.Handle, off int64, dst []byte) error {
	stage, err := cp.staging(PieceBytes)
	if err != nil {
		return err
	}
	var events [2]driver.Event
	var pending [2][]byte // destination of the piece in stage
	for i := 0; len(dst) > 0 || len(pending[i&1]) > 0 || len(pending[1-i&1]) > 0; i++ {
		s := i & 1
		if len(pending[s]) > 0 {
			err := cp.await(&events[s])
			if err != nil {
				return errors.Join(err, cp.abandon(events[:]))
			}
			copy(pending[s], stage[s])
			pending[s] = nil
		}
		if len(dst) == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return errors.Join(err, cp.abandon(events[:]))
		}
		n := min(len(dst), PieceBytes)
		if events[s], err = cp.read(mem, driver.Bytes(off, int64(n)), stage[s][:n], false); err != nil {
			return errors.Join(err, cp.abandon(events[:]))
		}
		pending[s], dst, off = dst[:n], dst[n:], off+int64(n)
	}
	return nil
}

// filler puts bytes of a content from off on into dst. In the object they belong to a place.
type filler func(dst []byte, off int64, to driver.Place) error

// upload is one transfer to the device: write issues the command for bytes that fill provides.
type upload struct {
	off, bytes int64
	fill       filler
	write      func(cp *copier, to driver.Place, src []byte, block bool) (driver.Event, error)
}

// up fills and writes pieces in turn: while one is on its way the next is
// filled. With unpinned they lie in plain memory, which the driver copies on its
// own way.
func (cp *copier) up(ctx context.Context, u upload, unpinned bool) (err error) {
	var stage [2][]byte
	var pin runtime.Pinner // Go must not free the memory before the last write of it is complete
	defer pin.Unpin()
	if n := min(PieceBytes, u.bytes); unpinned {
		for i := range stage {
			stage[i] = make([]byte, n)
			pin.Pin(&stage[i][0])
		}
	} else if stage, err = cp.staging(n); err != nil {
		return err
	}
	var events [2]driver.Event
	for i := 0; u.bytes > 0; i++ {
		s := i & 1
		err := ctx.Err()
		if err == nil {
			err = cp.await(&events[s])
		}
		n := min(u.bytes, PieceBytes)
		to := driver.Bytes(u.off, n)
		if err == nil {
			err = u.fill(stage[s][:n], u.off, to)
		}
		if err == nil {
			events[s], err = u.write(cp, to, stage[s][:n], false)
		}
		if err != nil {
			return errors.Join(err, cp.abandon(events[:]))
		}
		u.off, u.bytes = u.off+n, u.bytes-n
	}
	return errors.Join(cp.await(&events[0]), cp.await(&events[1]))
}

// issue gives the device a command, and again with less in the shadows of captures of d as long as there is too little
// memory there: some drivers take an object's memory at its first use. The device is stopped.
func (cp *copier) issue(d *State, command func() (driver.Event, error)) (ev driver.Event, err error) {
	if cp.drv != d.Session.Device { // a migration's target, which has no shadows
		return command()
	}
	err = d.WithRoom(func() (err error) {
		ev, err = command()
		return err
	})
	return ev, err
}

// done waits for a command that was issued, or failed to be.
func (cp *copier) done(ev driver.Event, err error) error {
	if err == nil {
		err = cp.await(&ev)
	}
	return err
}

// await waits for an event and lets it go.
func (cp *copier) await(e *driver.Event) error {
	if *e == 0 {
		return nil
	}
	err := cp.drv.WaitEvent(*e)
	cp.drv.ReleaseEvent(*e)
	*e = 0
	return err
}

// abandon waits until nothing uses the staging memory any more.
func (cp *copier) abandon(events []driver.Event) error {
	err := cp.drv.Finish(cp.q)
	for i := range events {
		if events[i] != 0 {
			cp.drv.ReleaseEvent(events[i])
		}
	}
	return err
}
