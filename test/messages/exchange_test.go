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

// exchange runs all checks with messages of all sizes. After each the device moves, and its memory lies elsewhere. Then
// the device is closed, and opened again.
func exchange(w *mpiwrap.Comm, device string) error {
	sel, err := gpustate.ParseSelect(device)
	if err != nil {
		return err
	}
	r := &rank{w: w, me: w.Rank(), other: 1 - w.Rank(), sel: sel}
	if err := r.onDevice(sizes[len(sizes)-1]); err != nil {
		return err
	}
	if w.DeviceMessages().SentStaged+w.DeviceMessages().SentDirect == 0 {
		return errors.New("no message was large")
	}
	if err := r.onDevice(1 << 20); err != nil {
		return fmt.Errorf("with the device opened again: %w", err)
	}
	return nil
}

// onDevice opens the device, runs all checks with messages of up to longest bytes, and closes it.
func (r *rank) onDevice(longest int) (err error) {
	if r.d, err = gpustate.Open(r.sel); err != nil {
		return err
	}
	var errs [3]error
	sizes := sizes
	for sizes[len(sizes)-1] > longest || r.d.Info().Kind != "cuda" && sizes[len(sizes)-1] > 8<<20 {
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
		if err := r.d.MigrateTo(context.Background(), r.sel); err != nil {
			return err
		}
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
		{"too long", r.tooLong}, {"broadcast", r.broadcast}, {"sum", r.sum}, {"all to all", r.allToAll},
		{"all to all with counts", r.allToAllv}, {"gathered", r.gathered},
		{"other buffers", r.otherBuffers}, {"captured", r.captured},
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
	_, _ = rand.NewChaCha8([32]byte{byte(rank), byte(i), byte(i >> 8)}).Read(b) // it always succeeds
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

// halves is what a collective of two ranks gives this one, whose parts are of half a message each.
func (r *rank) halves(do func(dest, src *gpustate.Range) error) error {
	half := r.n / 16 * 8
	var want []byte
	for from := range 2 {
		want = append(want, r.content(from, -3)[r.me*half:][:half]...)
	}
	err := errors.Join(r.spoil(r.in), r.q.Write(r.out, ahead, r.content(r.me, -3)))
	if err != nil {
		return err
	}
	if err := do(r.q.Range(r.in, ahead, 2*half), r.q.Range(r.out, ahead, 2*half)); err != nil {
		return err
	}
	if err := r.spoil(r.out); err != nil {
		return err
	}
	return r.has(append(want, bytes.Repeat([]byte{0xee}, r.n-2*half)...))
}

func (r *rank) allToAll() error {
	return r.halves(func(dest, src *gpustate.Range) error { return mpiwrap.AlltoallDevice(r.w, dest, src) })
}

func (r *rank) allToAllv() error {
	return r.halves(func(dest, src *gpustate.Range) error {
		k := src.Bytes() / 2 / 8
		counts, displs := []int{k, k}, []int{0, k}
		return mpiwrap.AlltoallvDevice[uint64](r.w, dest, counts, displs, src, counts, displs)
	})
}

// gathered: each rank gives half a message.
func (r *rank) gathered() error {
	half := r.n / 16 * 8
	want := append(r.content(0, -4)[:half], r.content(1, -4)[:half]...)
	if err := errors.Join(r.spoil(r.in), r.q.Write(r.out, ahead, r.content(r.me, -4))); err != nil {
		return err
	}
	err := mpiwrap.AllgatherDevice(r.w, r.q.Range(r.in, ahead, 2*half), r.q.Range(r.out, ahead, half))
	return errors.Join(err, r.spoil(r.out), r.has(append(want, bytes.Repeat([]byte{0xee}, r.n-2*half)...)))
}

// otherBuffers: MPI may remember an address, and how another process reaches it, when the buffer there is another
// one.
func (r *rank) otherBuffers() (err error) {
	was := [2]*gpustate.Buffer{r.out, r.in}
	defer func() { r.out, r.in = was[0], was[1] }()
	rounds := 12
	if r.n > 8<<20 {
		rounds = 3
	}
	for i := range rounds {
		var errs [2]error
		most := ahead + r.n + ahead + []int{0, 3 << 20, 100, 24 << 20}[i%4]
		r.out, errs[0] = r.d.Buffer("other out", most)
		if i%3 == 1 {
			most += 5 << 20
		}
		r.in, errs[1] = r.d.Buffer("other in", most)
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
		for range 2 { // the one that comes late may find its message staged
			if err := r.inTurn(); err != nil {
				return err
			}
		}
		if err := r.bothAtOnce(); err != nil {
			return err
		}
		if err := errors.Join(r.out.Release(), r.in.Release()); err != nil {
			return err
		}
	}
	return nil
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
