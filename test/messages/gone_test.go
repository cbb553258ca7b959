package messages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// A deed is what a program does to the memory of a receive that is pending.
type deed struct {
	name string
	do   func(g *gone) error
	want error // of Wait; nil: the message arrives
}

var deeds = []deed{
	{"nothing", func(*gone) error { return nil }, nil},
	{"the buffer is released", func(g *gone) error { return g.in.Release() }, gpustate.ErrReleased},
	{"the queue is released", func(g *gone) error { return g.q.Release() }, nil},
	{"the device is closed", func(g *gone) error { return g.d.Close() }, gpustate.ErrClosed},
	{"the device moves", func(g *gone) error {
		return g.d.MigrateTo(context.Background(), gpustate.Select{Kind: "fake", Index: 1})
	}, nil},
	{"the device is captured and restored", func(g *gone) error {
		c, err := g.d.Capture(context.Background(), nil)
		if err != nil {
			return err
		}
		return errors.Join(g.d.Restore(context.Background(), c.Record(), func(i int, dst []byte, off int64) error {
			return c.ReadAt(context.Background(), i, dst, off)
		}), c.Release())
	}, nil},
	{"foreign code has the device", func(g *gone) error {
		return g.d.Foreign(func(*gpustate.Foreign) error {
			st, err := g.r.Wait()
			g.over, g.st, g.err = true, st, err
			return nil
		})
	}, nil},
}

// gone is a receive whose memory goes.
type gone struct {
	w    *mpiwrap.Comm
	d    *gpustate.Device
	q    *gpustate.Queue
	in   *gpustate.Buffer
	r    *mpiwrap.Request
	over bool
	st   mpiwrap.Status
	err  error
}

// TestGone does each deed before and after the message has come, and waits for it in each way: what is wrong is the
// error of that receive, the ranks go on, and the next messages are whole.
func TestGone(t *testing.T) {
	for _, c := range deeds {
		for _, n := range []int{0, 100, 64<<10 - 1, 1<<20 + 5} {
			for _, late := range []bool{false, true} {
				for end, name := range []string{"wait", "test", "drain", "request"} {
					t.Run(fmt.Sprintf("%s/%d/late %v/%s", c.name, n, late, name), func(t *testing.T) {
						opt := mpitest.Options{Seed: uint64(n), Delay: 0.3, EagerBytes: 1 << 20 * (n & 1)}
						err := mpitest.NewWorld(2, opt).Run(func(w *mpiwrap.Comm) error {
							if w.Rank() == 1 {
								return sender(w, n, late)
							}
							return receiver(w, c, n, late, end)
						})
						if err != nil {
							t.Error(err)
						}
					})
				}
			}
		}
	}
}

func message(n, i int) []byte { return bytes.Repeat([]byte{byte(i), 1, 2, 3, 4, 5, 6}, n/7+1)[:n] }

func sender(w *mpiwrap.Comm, n int, late bool) error {
	d, err := gpustate.Open(gpustate.Select{Kind: "fake"})
	if err != nil {
		return err
	}
	defer d.Close()
	q, err1 := d.Queue("q")
	out, err2 := d.Buffer("out", max(n, 8))
	if err := errors.Join(err1, err2, q.Write(out, 0, message(max(n, 8), 1))); err != nil {
		return err
	}
	if !late {
		err = w.Barrier()
	}
	r, err3 := mpiwrap.IsendDevice(w, q.Range(out, 0, n), 0, 1)
	if late {
		err = w.Barrier()
	}
	if err := errors.Join(err, err3, w.Barrier()); err != nil {
		return err
	}
	if _, err := mpitestDrain(w); err != nil {
		return err
	}
	if _, err := r.Wait(); err != nil {
		return err
	}
	return errors.Join(mpiwrap.Send(w, message(n, 2), 0, 1), w.Barrier())
}

func mpitestDrain(w *mpiwrap.Comm) (endpoint.DrainStats, error) {
	return w.Endpoint().Drain(context.Background())
}

func receiver(w *mpiwrap.Comm, c deed, n int, late bool, end int) (err error) {
	g := &gone{w: w}
	if g.d, err = gpustate.Open(gpustate.Select{Kind: "fake"}); err != nil {
		return err
	}
	defer g.d.Close()
	var err1, err2, err3 error
	g.q, err1 = g.d.Queue("q")
	g.in, err2 = g.d.Buffer("in", max(n, 8))
	if end == 3 {
		g.r = mpiwrap.NewDeviceRequest(w, g.q.Range(g.in, 0, n))
		err3 = g.r.Irecv(1, 1)
	} else {
		g.r, err3 = mpiwrap.IrecvDevice(w, g.q.Range(g.in, 0, n), mpiwrap.AnySource, mpiwrap.AnyTag)
	}
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if late {
		err = w.Barrier()
	}
	if c.name == "foreign code has the device" && !late {
		err = errors.Join(err, w.Barrier())
	}
	if err := errors.Join(err, c.do(g)); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	if c.name != "foreign code has the device" && !late {
		err = w.Barrier()
	}
	if err := errors.Join(err, w.Barrier()); err != nil {
		return err
	}
	switch {
	case g.over:
		_, err = mpitestDrain(w)
	case end == 2:
		if _, err = mpitestDrain(w); err == nil && c.want == nil { // what a restart needs is there
			_, err = w.Endpoint().SaveMailbox()
		}
		g.st, g.err = g.r.Wait()
	case end == 1:
		for ok := false; !ok && g.err == nil; {
			g.st, ok, g.err = g.r.Test()
		}
		_, err = mpitestDrain(w)
	default:
		g.st, g.err = g.r.Wait()
		_, err = mpitestDrain(w)
	}
	if err != nil {
		return err
	}
	if !errors.Is(g.err, c.want) || c.want == nil && (g.err != nil || g.st.Bytes != n) {
		return fmt.Errorf("got %+v, %v, want %v", g.st, g.err, c.want)
	}
	if g.err == nil {
		got := make([]byte, n)
		q, err := g.d.Queue("another")
		if err != nil {
			return err
		}
		if err := q.Read(g.in, 0, got); err != nil || !bytes.Equal(got, message(max(n, 8), 1)[:n]) {
			return fmt.Errorf("other bytes came than were sent: %v", err)
		}
	}
	got := make([]byte, n)
	if _, err := mpiwrap.Recv(w, got, 1, 1); err != nil || !bytes.Equal(got, message(n, 2)) {
		return fmt.Errorf("the next message: %v", err)
	}
	return errors.Join(w.Barrier(), g.d.Close())
}
