package messages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// leaving is a send whose memory goes while its message is on the way, and the receive of it.
type leaving struct {
	do      func(d *gpustate.Device, q *gpustate.Queue, b *gpustate.Buffer) error
	stays   bool // the memory does
	n       int
	reused  bool
	drained bool // before Wait
	freed   bool // the communicator, before Wait; and the receive is posted before all this
}

// TestSendsGo: a send has what was there when it was started, whatever goes then. A request that is used again cannot
// be started without its memory or its queue, whatever its length.
func TestSendsGo(t *testing.T) {
	for name, l := range map[string]leaving{
		"the buffer is released": {do: func(_ *gpustate.Device, _ *gpustate.Queue, b *gpustate.Buffer) error {
			return b.Release()
		}},
		"the queue is released": {do: func(_ *gpustate.Device, q *gpustate.Queue, _ *gpustate.Buffer) error {
			return q.Release()
		}},
		"the device is closed": {do: func(d *gpustate.Device, _ *gpustate.Queue, _ *gpustate.Buffer) error {
			return d.Close()
		}},
		"the device moves": {do: func(d *gpustate.Device, _ *gpustate.Queue, _ *gpustate.Buffer) error {
			return d.MigrateTo(context.Background(), gpustate.Select{Kind: "fake", Index: 1})
		}, stays: true},
		"the bytes are others": {do: func(_ *gpustate.Device, q *gpustate.Queue, b *gpustate.Buffer) error {
			_, err := q.Fill(b, 0, b.Bytes(), []byte{0})
			return err
		}, stays: true},
	} {
		for _, l.n = range []int{0, 5, 64<<10 - 1, 64 << 10, 3<<20 + 5} {
			for way := range 8 {
				l.reused, l.drained, l.freed = way&1 != 0, way&2 != 0, way&4 != 0
				t.Run(fmt.Sprintf("%s/%d/%d", name, l.n, way), func(t *testing.T) {
					opt := mpitest.Options{Seed: uint64(l.n + way), Delay: 0.3, EagerBytes: 1000 * (l.n & 1)}
					err := mpitest.NewWorld(2, opt).Run(func(w *mpiwrap.Comm) error {
						c, err := w.Dup()
						if err != nil {
							return err
						}
						d, q, b, err := openFor(l.n)
						if err != nil {
							return err
						}
						defer d.Close()
						if w.Rank() == 1 {
							return l.send(c, d, q, b)
						}
						return l.receive(c, q, b)
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// openFor opens a device with a buffer for n bytes.
func openFor(n int) (d *gpustate.Device, q *gpustate.Queue, b *gpustate.Buffer, err error) {
	if d, err = gpustate.Open(gpustate.Select{Kind: "fake"}); err != nil {
		return nil, nil, nil, err
	}
	q, err1 := d.Queue("q")
	b, err2 := d.Buffer("b", max(n, 8))
	return d, q, b, errors.Join(err1, err2)
}

func (l *leaving) send(c *mpiwrap.Comm, d *gpustate.Device, q *gpustate.Queue, b *gpustate.Buffer) (err error) {
	if err := q.Write(b, 0, message(b.Bytes(), 1)); err != nil {
		return err
	}
	var r *mpiwrap.Request
	if !l.reused {
		r, err = mpiwrap.IsendDevice(c, q.Range(b, 0, l.n), 0, 1)
	} else {
		r = mpiwrap.NewDeviceRequest(c, q.Range(b, 0, l.n))
		err = r.Isend(0, 1)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(l.do(d, q, b), l.meanwhile(c)); err != nil {
		return err
	}
	if _, err = r.Wait(); err != nil {
		return err
	}
	if l.reused && !l.stays && !l.freed {
		if err := r.Isend(0, 1); !errors.Is(err, gpustate.ErrReleased) && !errors.Is(err, gpustate.ErrClosed) {
			return fmt.Errorf("to start it again gives %v", err)
		}
	}
	return r.Free()
}

// meanwhile is what both ranks do before they wait.
func (l *leaving) meanwhile(c *mpiwrap.Comm) error {
	if l.drained {
		if _, err := mpitestDrain(c); err != nil {
			return err
		}
	}
	if l.freed {
		return c.Free()
	}
	return nil
}

func (l *leaving) receive(c *mpiwrap.Comm, q *gpustate.Queue, b *gpustate.Buffer) (err error) {
	if !l.freed {
		if err := l.meanwhile(c); err != nil {
			return err
		}
	}
	r, err := mpiwrap.IrecvDevice(c, q.Range(b, 0, l.n), 1, 1)
	if err == nil && l.freed {
		err = l.meanwhile(c)
	}
	if err != nil {
		return err
	}
	st, err := r.Wait()
	if err != nil || st.Bytes != l.n {
		return fmt.Errorf("got %+v, %v", st, err)
	}
	got := make([]byte, l.n)
	if err := q.Read(b, 0, got); err != nil || !bytes.Equal(got, message(b.Bytes(), 1)[:l.n]) {
		return fmt.Errorf("other bytes came than were sent (%v)", err)
	}
	return nil
}
