package session

import (
	"errors"
	"io"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// carry is how a transfer between servers passes this one: two pieces of memory,
// one on its way while the other is filled or emptied.
type carry struct {
	drv    driver.Device
	q      driver.Handle
	stage  [2][]byte
	pinned [2]driver.Pinned
	events [2]driver.Event
}

// carryBytes is one piece between servers.
const carryBytes = 2 << 20

func newCarry(c *Session) (*carry, error) {
	t := &carry{drv: c.drv}
	var err error
	if t.q, err = c.drv.CreateQueue(driver.QueueDesc{}); err != nil {
		return nil, err
	}
	for i := range t.stage {
		if c.dev.Info.HostMemory {
			t.stage[i] = make([]byte, carryBytes)
			continue
		}
		if t.pinned[i], err = c.drv.AllocPinned(carryBytes); err != nil {
			return nil, errors.Join(err, t.close())
		}
		t.stage[i] = t.pinned[i].Bytes()
	}
	return t, nil
}

func (t *carry) close() error {
	errs := []error{t.drv.Finish(t.q)}
	for i := range t.events {
		_ = t.await(i) // it was waited for
	}
	for _, p := range t.pinned {
		if p != nil {
			errs = append(errs, p.Free())
		}
	}
	return errors.Join(append(errs, t.drv.ReleaseQueue(t.q))...)
}

func (t *carry) await(i int) error {
	if t.events[i] == 0 {
		return nil
	}
	err := t.drv.WaitEvent(t.events[i])
	t.drv.ReleaseEvent(t.events[i])
	t.events[i] = 0
	return err
}

// send writes an object's bytes to w while the next ones come from the device.
func (t *carry) send(w io.Writer, m driver.Handle, off, bytes int64) error {
	end := off + bytes
	var filled [2]int64
	begin := func(i int) (err error) {
		if filled[i] = min(end-off, carryBytes); filled[i] > 0 {
			t.events[i], err = t.drv.Read(t.q, m, off, t.stage[i][:filled[i]], false, nil)
			off += filled[i]
		}
		return err
	}
	if err := begin(0); err != nil {
		return err
	}
	for i := 0; filled[i] > 0; i ^= 1 {
		if err := begin(i ^ 1); err != nil {
			return err
		}
		if err := t.await(i); err != nil {
			return err
		}
		if _, err := w.Write(t.stage[i][:filled[i]]); err != nil {
			return err
		}
	}
	return nil
}

// receive writes bytes from r to an object while the next ones arrive.
func (t *carry) receive(r io.Reader, m driver.Handle, off, bytes int64) error {
	end := off + bytes
	for i := 0; off < end; i ^= 1 {
		if err := t.await(i); err != nil {
			return err
		}
		n := min(end-off, carryBytes)
		piece := t.stage[i][:n]
		if _, err := io.ReadFull(r, piece); err != nil {
			return err
		}
		var err error
		if t.events[i], err = t.drv.Write(t.q, m, off, piece, false, nil); err != nil {
			return err
		}
		off += n
	}
	return errors.Join(t.await(0), t.await(1))
}
