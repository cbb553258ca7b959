package messages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/holdfast-hpc/holdfast/gpustate"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // the fake device
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// sizes are short and large messages, and what lies between, all multiples of 8 bytes. A GPU has the last as well.
var sizes = []int{8, 1000, 64<<10 - 8, 64 << 10, 1<<20 + 24, 40 << 20}

// ahead is how much of a buffer lies before a range.
const ahead = 24

// rank is one of the two, with its device.
type rank struct {
	w             *mpiwrap.Comm
	me, other     int
	sel           gpustate.Select
	d             *gpustate.Device
	q             *gpustate.Queue
	out, in       *gpustate.Buffer
	n             int // bytes of the messages
	sent, arrived int // messages
}

// exchange runs all checks with messages of all sizes. After each the device moves, and its memory lies elsewhere.
func exchange(w *mpiwrap.Comm, device string) error {
	sel, err := gpustate.ParseSelect(device)
	if err != nil {
		return err
	}
	r := &rank{w: w, me: w.Rank(), other: 1 - w.Rank(), sel: sel}
	if r.d, err = gpustate.Open(sel); err != nil {
		return err
	}
	var errs [3]error
	if r.d.Info().Kind != "cuda" {
		sizes = sizes[:len(sizes)-1]
	}
	most := ahead + sizes[len(sizes)-1] + ahead
	r.q, errs[0] = r.d.Queue("q")
	r.out, errs[1] = r.d.Buffer("out", most)
	r.in, errs[2] = r.d.Buffer("in", most)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	for _, n := range sizes {
		r.n = n
		if err := r.all(); err != nil {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
		if err := r.d.MigrateTo(context.Background(), sel); err != nil {
			return err
		}
	}
	if w.DeviceMessages().SentStaged+w.DeviceMessages().SentDirect == 0 {
		return errors.New("no message was large")
	}
	return r.d.Close()
}

func (r *rank) all() error {
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"send and receive", r.inTurn}, {"synchronous", r.synchronous}, {"posted", r.posted}, {"started", r.started},
		{"both at once", r.bothAtOnce}, {"to itself", r.toItself}, {"from the host", r.fromHost},
		{"too long", r.tooLong}, {"broadcast", r.broadcast}, {"sum", r.sum}, {"captured", r.captured},
	} {
		if err := c.do(); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// content is message number i of a rank.
func (r *rank) content(rank, i int) []byte {
	b := make([]byte, r.n)
	rng := rand.NewPCG(uint64(rank), uint64(i))
	for k := 0; k+8 <= len(b); k += 8 {
		x := rng.Uint64()
		for j := range 8 {
			b[k+j] = byte(x >> (8 * j))
		}
	}
	return b
}

func (r *rank) src() *gpustate.Range  { return r.q.Range(r.out, ahead, r.n) }
func (r *rank) dest() *gpustate.Range { return r.q.Range(r.in, ahead, r.n) }

// next enqueues what makes the memory to be sent the next message.
func (r *rank) next() error {
	r.sent++
	return r.q.Write(r.out, ahead, r.content(r.me, r.sent))
}

// spoil enqueues what overwrites a buffer.
func (r *rank) spoil(b *gpustate.Buffer) error {
	_, err := r.q.Fill(b, 0, ahead+r.n+ahead, []byte{0xee})
	return err
}

// has checks that a message is in the middle of what was overwritten before.
func (r *rank) has(want []byte) error {
	got := make([]byte, ahead+r.n+ahead)
	if err := r.q.Read(r.in, 0, got); err != nil {
		return err
	}
	beside := bytes.Repeat([]byte{0xee}, ahead)
	if !bytes.Equal(got[:ahead], beside) || !bytes.Equal(got[ahead+r.n:], beside) {
		return errors.New("what lies beside the range was changed")
	}
	if !bytes.Equal(got[ahead:ahead+r.n], want) {
		return errors.New("other bytes came than were sent")
	}
	return nil
}

// got checks a message of the other rank, the next one.
func (r *rank) got(st mpiwrap.Status, err error) error {
	r.arrived++
	if err == nil && (st.Bytes != r.n || st.Source != r.other) {
		err = fmt.Errorf("the status is %+v", st)
	}
	if err != nil {
		return err
	}
	return r.has(r.content(r.other, r.arrived))
}

// turns has both ranks send, one after the other.
func (r *rank) turns(send, receive func() error) error {
	for turn := range 4 {
		do := receive
		if turn%2 == r.me {
			do = send
		}
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

func (r *rank) receive() error {
	if err := r.spoil(r.in); err != nil {
		return err
	}
	return r.got(mpiwrap.RecvDevice(r.w, r.dest(), r.other, 1))
}

func (r *rank) inTurn() error {
	return r.turns(func() error {
		if err := r.next(); err != nil {
			return err
		}
		return errors.Join(mpiwrap.SendDevice(r.w, r.src(), r.other, 1), r.spoil(r.out))
	}, r.receive)
}

func (r *rank) synchronous() error {
	return r.turns(func() error {
		if err := r.next(); err != nil {
			return err
		}
		return errors.Join(mpiwrap.SsendDevice(r.w, r.src(), r.other, 1), r.spoil(r.out))
	}, r.receive)
}

// posted: the receive is there before its message, and the device is at work.
func (r *rank) posted() error {
	if err := r.spoil(r.in); err != nil {
		return err
	}
	in, err := mpiwrap.IrecvDevice(r.w, r.dest(), r.other, 2)
	if err = errors.Join(err, r.next()); err != nil {
		return err
	}
	if r.me == 1 { // its receiver waits
		if err := r.got(in.Wait()); err != nil {
			return err
		}
	}
	if err := mpiwrap.SendDevice(r.w, r.src(), r.other, 2); err != nil || r.me == 1 {
		return err
	}
	return r.got(in.Wait())
}

// started: what is enqueued after a send does not change its message.
func (r *rank) started() error {
	if err := errors.Join(r.spoil(r.in), r.next()); err != nil {
		return err
	}
	out, err := mpiwrap.IsendDevice(r.w, r.src(), r.other, 3)
	if err = errors.Join(err, r.spoil(r.out)); err != nil {
		return err
	}
	if err := r.got(mpiwrap.RecvDevice(r.w, r.dest(), r.other, 3)); err != nil {
		return err
	}
	_, err = out.Wait()
	return err
}

func (r *rank) bothAtOnce() error {
	for range 3 {
		if err := errors.Join(r.spoil(r.in), r.next()); err != nil {
			return err
		}
		st, err := mpiwrap.SendrecvDevice(r.w, r.src(), r.other, 4, r.dest(), r.other, 4)
		if err := errors.Join(r.spoil(r.out), r.got(st, err)); err != nil {
			return err
		}
	}
	return nil
}

func (r *rank) toItself() error {
	if err := errors.Join(r.spoil(r.in), r.next()); err != nil {
		return err
	}
	out, err := mpiwrap.IsendDevice(r.w, r.src(), r.me, 5)
	if err != nil {
		return err
	}
	_, err = mpiwrap.RecvDevice(r.w, r.dest(), r.me, 5)
	want := r.content(r.me, r.sent)
	r.sent-- // the other rank does not count it
	_, err2 := out.Wait()
	return errors.Join(err, err2, r.has(want))
}

// fromHost: one end of a message is host memory.
func (r *rank) fromHost() error {
	return r.turns(func() error {
		r.sent++
		return mpiwrap.Send(r.w, r.content(r.me, r.sent), r.other, 6)
	}, func() error {
		if err := r.spoil(r.in); err != nil {
			return err
		}
		return r.got(mpiwrap.RecvDevice(r.w, r.dest(), r.other, 6))
	})
}

// tooLong: a message that is longer than the range is an error, and changes nothing beside it.
func (r *rank) tooLong() error {
	return r.turns(func() error {
		if err := r.next(); err != nil {
			return err
		}
		return mpiwrap.SendDevice(r.w, r.src(), r.other, 7)
	}, func() error {
		r.arrived++
		if err := r.spoil(r.in); err != nil {
			return err
		}
		half := r.n / 16 * 8
		_, err := mpiwrap.RecvDevice(r.w, r.q.Range(r.in, ahead, half), r.other, 7)
		if !errors.Is(err, mpiwrap.ErrTruncate) {
			return fmt.Errorf("got %v, want ErrTruncate", err)
		}
		got := make([]byte, ahead)
		if err := r.q.Read(r.in, ahead+half, got); err != nil {
			return err
		}
		if !bytes.Equal(got, bytes.Repeat([]byte{0xee}, ahead)) {
			return errors.New("what lies behind the range was changed")
		}
		return nil
	})
}

func (r *rank) broadcast() error {
	for root := range 2 {
		if err := r.spoil(r.in); err != nil {
			return err
		}
		want := r.content(root, -1)
		if r.me == root {
			if err := r.q.Write(r.in, ahead, want); err != nil {
				return err
			}
		}
		if err := errors.Join(mpiwrap.BcastDevice(r.w, r.dest(), root), r.has(want)); err != nil {
			return err
		}
	}
	return nil
}

func (r *rank) sum() error {
	a, b := r.content(0, -2), r.content(1, -2)
	mine := a
	if r.me == 1 {
		mine = b
	}
	if err := errors.Join(r.spoil(r.in), r.q.Write(r.out, ahead, mine)); err != nil {
		return err
	}
	want := make([]byte, r.n)
	for i := range want {
		want[i] = a[i] ^ b[i]
	}
	return errors.Join(mpiwrap.AllreduceDevice[uint64](r.w, r.dest(), r.src(), mpiwrap.Bxor), r.has(want))
}

// captured: a capture right after a receive has its message, and brings it back.
func (r *rank) captured() error {
	if err := r.inTurn(); err != nil {
		return err
	}
	ctx := context.Background()
	last := make([]byte, r.n)
	if err := r.q.Read(r.in, ahead, last); err != nil {
		return err
	}
	c, err := r.d.Capture(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := r.q.Fill(r.in, 0, ahead+r.n+ahead, []byte{1}); err != nil {
		return err
	}
	read := func(i int, dst []byte, off int64) error { return c.ReadAt(ctx, i, dst, off) }
	return errors.Join(r.d.Restore(ctx, c.Record(), read), c.Release(), r.has(last))
}
