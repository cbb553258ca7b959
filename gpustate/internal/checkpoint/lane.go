package checkpoint

import (
	"context"
	"errors"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// lane moves bytes between a device and the host: a queue and two pieces of
// staging memory, so that one piece is in transfer while the other is copied.
// From devices whose memory is the host's, and into pinned memory, it reads
// without staging.
type lane struct {
	drv    driver.Device
	pinned *pinnedMemory
	q      driver.Handle
	stage  [2]driver.Pinned
}

func newLane(s *Session) (*lane, error) {
	q, err := s.CreateQueue(driver.QueueDesc{})
	if err != nil {
		return nil, err
	}
	return &lane{drv: s.Device, pinned: &s.pinned, q: q}, nil
}

func (l *lane) close() error {
	var errs []error
	for _, p := range l.stage {
		if p != nil {
			errs = append(errs, p.Free())
		}
	}
	return errors.Join(append(errs, l.drv.ReleaseQueue(l.q))...)
}

// staging gives the two pieces, with room for pieces of n bytes.
func (l *lane) staging(n int64) (s [2][]byte, err error) {
	for i := range l.stage {
		if l.drv.Info().HostMemory && (l.stage[i] == nil || int64(len(l.stage[i].Bytes())) < n) {
			l.stage[i] = driver.Plain(make([]byte, n))
		}
		if l.stage[i] == nil {
			l.stage[i], err = l.drv.AllocPinned(PieceBytes)
			if errors.Is(err, driver.ErrOutOfMemory) { // slower is better than not at all
				l.stage[i], err = driver.Plain(make([]byte, PieceBytes)), nil
			}
			if err != nil {
				l.stage[i] = nil
				return s, err
			}
		}
		s[i] = l.stage[i].Bytes()
	}
	return s, nil
}

// down reads len(dst) bytes of a buffer from off on.
func (l *lane) down(ctx context.Context, mem driver.Handle, off int64, dst []byte) error {
	if l.drv.Info().HostMemory {
		if len(dst) == 0 {
			return nil
		}
		_, err := l.drv.Read(l.q, mem, off, dst, true, nil)
		return err
	}
	n, err := l.direct(ctx, mem, off, dst)
	if err != nil || n == len(dst) {
		return err
	}
	return l.staged(ctx, mem, off+int64(n), dst[n:])
}

// direct reads what of dst, from its first byte on, is pinned, and tells how
// much that is.
func (l *lane) direct(ctx context.Context, mem driver.Handle, off int64, dst []byte) (n int, err error) {
	l.pinned.mu.RLock()
	defer l.pinned.mu.RUnlock()
	for n < len(dst) {
		k := min(l.pinned.covered(dst[n:]), jobBytes)
		if k == 0 {
			break
		}
		if err := ctx.Err(); err != nil {
			return n, err
		}
		ev, err := l.drv.Read(l.q, mem, off+int64(n), dst[n:n+k], false, nil)
		if err == nil {
			err = l.await(&ev)
		}
		if err != nil {
			return n, errors.Join(err, l.drv.Finish(l.q))
		}
		n += k
	}
	return n, nil
}

// staged reads through the staging memory.
func (l *lane) staged(ctx context.Context, mem driver.Handle, off int64, dst []byte) error {
	stage, err := l.staging(PieceBytes)
	if err != nil {
		return err
	}
	var events [2]driver.Event
	var pending [2][]byte // where the piece in stage goes
	for i := 0; len(dst) > 0 || len(pending[i&1]) > 0 || len(pending[1-i&1]) > 0; i++ {
		s := i & 1
		if len(pending[s]) > 0 {
			err := l.await(&events[s])
			if err != nil {
				return errors.Join(err, l.abandon(events[:]))
			}
			copy(pending[s], stage[s])
			pending[s] = nil
		}
		if len(dst) == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return errors.Join(err, l.abandon(events[:]))
		}
		n := min(len(dst), PieceBytes)
		if events[s], err = l.drv.Read(l.q, mem, off, stage[s][:n], false, nil); err != nil {
			return errors.Join(err, l.abandon(events[:]))
		}
		pending[s], dst, off = dst[:n], dst[n:], off+int64(n)
	}
	return nil
}

// upload is one transfer to the device: fill puts bytes from off on into dst,
// write issues the command for them.
type upload struct {
	off, bytes int64
	fill       func(dst []byte, off int64) error
	write      func(l *lane, off int64, src []byte, block bool) (driver.Event, error)
}

// up fills and writes pieces in turn: while one is on its way the next is
// filled. With unpinned they lie in plain memory, which the driver copies on its
// own way.
func (l *lane) up(ctx context.Context, u upload, unpinned bool) (err error) {
	var stage [2][]byte
	if n := min(PieceBytes, u.bytes); unpinned {
		stage = [2][]byte{make([]byte, n), make([]byte, n)}
	} else if stage, err = l.staging(n); err != nil {
		return err
	}
	var events [2]driver.Event
	for i := 0; u.bytes > 0; i++ {
		s := i & 1
		err := ctx.Err()
		if err == nil {
			err = l.await(&events[s])
		}
		n := min(u.bytes, PieceBytes)
		if err == nil {
			err = u.fill(stage[s][:n], u.off)
		}
		if err == nil {
			events[s], err = u.write(l, u.off, stage[s][:n], false)
		}
		if err != nil {
			return errors.Join(err, l.abandon(events[:]))
		}
		u.off, u.bytes = u.off+n, u.bytes-n
	}
	return errors.Join(l.await(&events[0]), l.await(&events[1]))
}

// issue gives the device a command, and again with less in the shadows of captures of d as long as there is too little
// memory there: some drivers take an object's memory at its first use. The device is stopped.
func (l *lane) issue(d *State, command func() (driver.Event, error)) (ev driver.Event, err error) {
	do := func() (err error) {
		ev, err = command()
		return err
	}
	if l.drv != d.Session.Device { // a migration's target, which has no shadows
		return command()
	}
	err = d.WithRoom(do)
	return ev, err
}

// await waits for an event and lets it go.
func (l *lane) await(e *driver.Event) error {
	if *e == 0 {
		return nil
	}
	err := l.drv.WaitEvent(*e)
	l.drv.ReleaseEvent(*e)
	*e = 0
	return err
}

// abandon waits until nothing uses the staging memory any more.
func (l *lane) abandon(events []driver.Event) error {
	err := l.drv.Finish(l.q)
	for i := range events {
		if events[i] != 0 {
			l.drv.ReleaseEvent(events[i])
		}
	}
	return err
}
