package gpustate

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
)

// Range is a part of a buffer for messages of package mpiwrap (mpiwrap.DeviceRange), with the queue that orders them. A
// message has the results of all commands that the queue got before the call. Its other methods are for mpiwrap;
// programs use Write, Read and their like of Queue.
//
// A Range needs no release. It stays valid when the device moves or is restored, and fails with
// ErrReleased or ErrClosed when its buffer or the device is gone.
type Range struct {
	q      *Queue
	b      Linear
	off, n int
}

// Range returns the n bytes of b from off on, for messages that q orders. A range that b does not
// have, or of another device, makes the message fail with ErrRange or ErrOtherDevice.
func (q *Queue) Range(b Linear, off, n int) *Range { return &Range{q: q, b: b, off: off, n: n} }

// Bytes returns the length of the range in bytes.
func (r *Range) Bytes() int { return r.n }

// Check returns an error if the range cannot be used: it matches ErrClosed, ErrReleased, ErrRange or ErrOtherDevice.
func (r *Range) Check() error {
	d := r.q.dev
	if err := d.enter(); err != nil {
		return r.b.linear().fail("send or receive", err)
	}
	defer d.leave()
	if r.q.e.Released.Load() {
		return r.q.fail("use", ErrReleased)
	}
	a := bytesOf(r.b, r.off, r.n)
	return a.Fail("send or receive", a.Check(&d.state.Table))
}

// Device returns the *Device of the range.
func (r *Range) Device() any { return r.q.dev }

// Kind returns Info.Kind of the device.
func (r *Range) Kind() string { return r.q.dev.Info().Kind }

// inOrder returns the events that a command waits for that is to come after all that q was given.
func (q *Queue) inOrder() ([]*Event, error) {
	if !q.e.Record.Queue.OutOfOrder {
		return nil, nil
	}
	e, err := q.Marker()
	return []*Event{e}, err
}

// Read copies the beginning of the range to dst, after the queue's present commands. A queue that is released has
// completed that. It returns when dst is filled.
func (r *Range) Read(dst []byte) error {
	q := r.q
	if q.e.Released.Load() {
		var err error
		if q, err = q.dev.messageQueue(queueDown); err != nil {
			return err
		}
	}
	after, err := q.inOrder()
	if err != nil {
		return err
	}
	_, err = q.transfer(transfer{Area: bytesOf(r.b, r.off, len(dst)), host: dst, read: true, block: true}, after)
	return err
}

// Write copies src to the beginning of the range, after the queue's present commands. It returns when src is free.
func (r *Range) Write(src []byte) error {
	after, err := r.q.inOrder()
	if err != nil {
		return err
	}
	_, err = r.q.transfer(transfer{Area: bytesOf(r.b, r.off, len(src)), host: src, block: true}, after)
	return err
}

// The queues of messages: the two directions overlap, and the program's commands go on. They are
// objects of the device like the program's.
const (
	queueDown = "holdfast messages from the device"
	queueUp   = "holdfast messages to the device"
)

func (d *Device) messageQueue(name string) (*Queue, error) {
	return d.QueueWith(name, QueueOptions{Window: -1})
}

// ReadPieces begins to copy the range, from byte off on, to pieces that follow each other, after the queue's present
// commands and before its later ones. Each of waits returns when its piece is there; dst is not used before.
func (r *Range) ReadPieces(off int, dst [][]byte) (waits []func() error, err error) {
	down, err := r.q.dev.messageQueue(queueDown)
	if err != nil {
		return nil, err
	}
	before, err := r.q.Marker()
	if err != nil {
		return nil, err
	}
	at := r.off + off
	after := []*Event{before} // the others come after the first one
	var last *Event
	for _, p := range dst {
		e, err := down.ReadAsync(r.b, at, p, after...)
		if err != nil {
			return nil, errors.Join(err, endReads(last))
		}
		last, at, after = e, at+len(p), nil
		waits = append(waits, e.waitPolling)
	}
	if last == nil {
		return nil, nil
	}
	if _, err := r.q.Barrier(last); err != nil {
		return nil, errors.Join(err, endReads(last))
	}
	return waits, nil
}

// aboutToEnd is for how long waitPolling asks: a piece of a message takes a tenth of it.
const aboutToEnd = 300 * time.Microsecond

// waitPolling is Wait for a command that is about to end, while another thread issues commands: to ask leaves
// the driver to that one meanwhile.
func (e *Event) waitPolling() error {
	for until := time.Now().Add(aboutToEnd); time.Now().Before(until); runtime.Gosched() {
		if done, err := e.Done(); done || err != nil {
			return err
		}
	}
	return e.Wait()
}

// endReads waits until memory that was to be read into is free again.
func endReads(last *Event) error {
	if last == nil {
		return nil
	}
	return last.Wait()
}

// Mark returns the present position in the queue. It issues a marker.
func (r *Range) Mark() (any, error) {
	e, err := r.q.Marker()
	if err != nil {
		return nil, err
	}
	return e, nil
}

// WritePiece begins to copy src to the range from byte off on, after a position of Mark, or, with nil, after the
// commands that the queue was given. src stays as it is until wait returns. Bytes beyond the range match ErrRange.
func (r *Range) WritePiece(mark any, off int, src []byte) (wait func() error, err error) {
	up, err := r.q.dev.messageQueue(queueUp)
	if err != nil {
		return nil, err
	}
	after, ok := mark.(*Event)
	if !ok {
		if after, err = r.q.Marker(); err != nil {
			return nil, err
		}
	}
	if off < 0 || off > r.n || len(src) > r.n-off {
		return nil, r.b.linear().fail("receive", fmt.Errorf("bytes %d+%d of a range of %d: %w", off, len(src), r.n,
			ErrRange))
	}
	e, err := up.WriteAsync(r.b, r.off+off, src, after)
	if err != nil {
		return nil, err
	}
	return e.Wait, nil
}

// Whole runs do while captures, restores and moves of the device wait. do must not call them,
// nor Foreign.
func (r *Range) Whole(do func() error) error {
	d := r.q.dev
	d.lending.RLock()
	defer d.lending.RUnlock()
	if d.closed.Load() {
		return ErrClosed
	}
	return do()
}

// Lend runs do with the address of the range when the commands before a position of Mark are complete, or, with nil,
// those that the queue was given. Devices whose memory has no address in this process refuse with an error that matches
// ErrUnsupported and errors.ErrUnsupported.
func (r *Range) Lend(mark any, do func(pointer uintptr) error) error {
	if err := r.ready(mark); err != nil {
		return err
	}
	return r.q.dev.lendToMPI(func(f *Foreign) error {
		p, err := r.pointer(f)
		if err != nil {
			return err
		}
		return do(p)
	})
}

// LendWith is Lend of this range and of another *Range of the same device at once, which comes after a position of its
// own. A range of another device matches ErrOtherDevice.
func (r *Range) LendWith(mark, other, after any, do func(pointer, other uintptr) error) error {
	o, ok := other.(*Range)
	if !ok || o.q.dev != r.q.dev {
		return r.b.linear().fail("lend", ErrOtherDevice)
	}
	if err := errors.Join(r.ready(mark), o.ready(after)); err != nil {
		return err
	}
	return r.q.dev.lendToMPI(func(f *Foreign) error {
		p, err1 := r.pointer(f)
		q, err2 := o.pointer(f)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		return do(p, q)
	})
}

// lendToMPI is Foreign for an MPI library. The first one that sees memory of a device makes streams and events in the
// context that is current then (Open MPI 4.1), and uses them for all later messages, of any device: a copy that fails
// aborts the process. So the context stays when the device is closed or has moved away.
func (d *Device) lendToMPI(do func(f *Foreign) error) error {
	return d.Foreign(func(f *Foreign) error {
		if k, ok := f.lender.(driver.Keeper); ok {
			if err := k.Keep(); err != nil {
				return fmt.Errorf("keep the context of %s for MPI: %w", d.Info(), err)
			}
		}
		return do(f)
	})
}

// Common returns how many bytes the range and another *Range have in common.
func (r *Range) Common(other any) int {
	o, ok := other.(*Range)
	if !ok || r.n <= 0 || o.n <= 0 {
		return 0
	}
	of, from := r.place()
	and, at := o.place()
	if of != and {
		return 0
	}
	return max(0, min(from+r.n, at+o.n)-max(from, at))
}

// place returns the buffer of the range and its offset there.
func (r *Range) place() (of *object.Entry, from int) {
	i := r.b.linear()
	i.dev.making.Lock()
	defer i.dev.making.Unlock()
	e := i.e
	if e.Record.Mem.Kind == driver.MemSub && e.Parent != nil {
		return e.Parent, r.off + int(e.Record.Mem.Offset)
	}
	return e, r.off
}

// ready waits until the range may be lent.
func (r *Range) ready(mark any) error {
	if k := r.Kind(); k != "cuda" && k != "fake" {
		return fmt.Errorf("memory of %s has no address: %w, %w", r.q.dev.Info(), ErrUnsupported,
			errors.ErrUnsupported)
	}
	if err := r.Check(); err != nil {
		return err
	}
	if after, ok := mark.(*Event); ok {
		return after.Wait()
	}
	return r.q.Finish()
}

func (r *Range) pointer(f *Foreign) (uintptr, error) {
	p, err := f.pointer(r.b.linear())
	return p + uintptr(r.off), err
}

// Pin is Device.Pin until the device is closed, which need not wait for unpin.
func (r *Range) Pin(b []byte) (unpin func() error, err error) { return r.q.dev.pin(b, true) }
