package gpustate

import (
	"errors"
	"fmt"
	"sync"
)

// CopyFrom copies n bytes of src, an object of another device, to dst, an object of q's
// device, and returns when that is done. It comes after the commands that were issued to q
// and to from, src's queue. The bytes go through the host in pieces, so both devices may
// move meanwhile; a capture of q's device that is taken meanwhile has some of them.
func (q *Queue) CopyFrom(dst Linear, dstOff int, from *Queue, src Linear, srcOff, n int) error {
	to, e := dst.linear(), src.linear()
	if err := errors.Join(to.fail("copy to", to.reach(q.dev, dstOff, n)),
		e.fail("copy from", e.reach(from.dev, srcOff, n))); err != nil {
		return err
	}
	if from.dev == q.dev {
		before, err := from.Marker()
		if err != nil {
			return err
		}
		own, err := q.Marker()
		if err != nil {
			return err
		}
		done, err := q.Copy(dst, dstOff, src, srcOff, n, before, own)
		if err != nil {
			return err
		}
		return done.Wait()
	}
	read, err := from.Marker()
	if err != nil {
		return err
	}
	written, err := q.Marker()
	if err != nil {
		return err
	}
	return q.stage(dst, dstOff, from, src, srcOff, n, read, written)
}

// stage copies in pieces through the host: one is read while the one before is written.
// read and written are what the first piece waits for, on each side.
func (q *Queue) stage(dst Linear, dstOff int, from *Queue, src Linear, srcOff, n int, read, written *Event) error {
	var room [2][]byte
	var last [2]*Event // writes from room
	for i := 0; n > 0; i++ {
		k, half := min(n, pieceBytes), i&1
		if last[half] != nil {
			if err := last[half].Wait(); err != nil {
				return err
			}
		}
		if len(room[half]) < k {
			room[half] = make([]byte, k)
		}
		piece := room[half][:k]
		r, err := from.ReadAsync(src, srcOff, piece, read)
		if err == nil {
			err = r.Wait()
		}
		if err == nil {
			last[half], err = q.WriteAsync(dst, dstOff, piece, written)
		}
		if err != nil {
			return errors.Join(err, waitAll(last[:]))
		}
		dstOff, srcOff, n = dstOff+k, srcOff+k, n-k
	}
	return waitAll(last[:])
}

func waitAll(events []*Event) error {
	var errs []error
	for _, e := range events {
		if e != nil {
			errs = append(errs, e.Wait())
		}
	}
	return errors.Join(errs...)
}

// Spread is one buffer on several devices: on each of them a Buffer of the same name and
// size. The device that wrote last has its contents; Use brings them to another device when
// that one wants them. All methods may be called from several goroutines, but, as with one
// device, who uses it on two at the same time must not write.
type Spread struct {
	name  string
	bytes int

	mu      sync.Mutex
	current map[*Device]*Queue // where the contents are, and the queue that wrote or brought them
}

// NewSpread makes a buffer that is on no device yet. It has a name: a restart finds its
// contents on each device by it.
func NewSpread(name string, bytes int) (*Spread, error) {
	if name == "" {
		return nil, fmt.Errorf("a buffer on several devices needs a name: %w", ErrIdentity)
	}
	return &Spread{name: name, bytes: bytes, current: map[*Device]*Queue{}}, nil
}

// Use gives the Buffer of q's device with the contents, for commands that are issued to q:
// the same queue each time that the device is used. With write the other devices' copies
// count as old from now on: issue the commands that write before the next Use. It waits for
// the queue of the device that has the contents when they are not here yet.
//
// On a device that was restored, a copy counts as having the contents: call Level before a
// checkpoint, so that all copies that it holds are the same.
func (s *Spread) Use(q *Queue, write bool) (*Buffer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.use(q, write)
}

// use is Use; mu is held.
func (s *Spread) use(q *Queue, write bool) (*Buffer, error) {
	b, err := q.dev.Buffer(s.name, s.bytes)
	if err != nil {
		return nil, err
	}
	if s.current[q.dev] == nil && !(len(s.current) == 0 && b.Restored()) {
		if err := s.bring(q, b); err != nil {
			return nil, err
		}
	}
	if write {
		clear(s.current)
	}
	if write || s.current[q.dev] == nil {
		s.current[q.dev] = q
	}
	return b, nil
}

// bring copies the contents to a device; nobody has any before the first write. mu is held.
func (s *Spread) bring(q *Queue, b *Buffer) error {
	for d, from := range s.current {
		src, err := d.Buffer(s.name, s.bytes)
		if err != nil {
			return err
		}
		if err := from.Finish(); err != nil {
			return err
		}
		return q.CopyFrom(b, 0, from, src, 0, s.bytes)
	}
	return nil
}

// Level brings the contents to the devices of these queues, so that each has them. A program
// that captures its devices calls it before.
func (s *Spread) Level(queues ...*Queue) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, q := range queues {
		_, err := s.use(q, false)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Release releases the Buffers of these queues' devices.
func (s *Spread) Release(queues ...*Queue) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, q := range queues {
		b, err := q.dev.Buffer(s.name, s.bytes)
		if err == nil {
			err = b.Release()
		}
		delete(s.current, q.dev)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
