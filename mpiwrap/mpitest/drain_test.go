package mpitest

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

var drainCases = []Case{
	{"drain keeps order and posted receives", drainOrder},
	{"drain with messages of rendezvous size", drainBig},
	{"cancel after a drain", drainCancel},
	{"probes look into the mailbox", drainProbe},
	{"truncation of a drained message", drainTruncation},
	{"drain completes collectives", drainCollectives},
	{"what is sent behind the cut stays there", behindTheCut},
}

// Drain empties the network under a time limit and checks the invariant of a
// cut: for every pair, sent = received + mailbox.
func Drain(w *mpiwrap.Comm) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e := w.Endpoint()
	if _, err := e.Drain(ctx); err != nil {
		return err
	}
	n := w.Private().Size()
	sent, got := make([]uint64, n), make([]uint64, n)
	for i := range sent {
		sent[i] = e.Sent(i)
	}
	if err := mpiwrap.Alltoall(w.Private(), got, sent); err != nil {
		return err
	}
	for i := range got {
		if e.Received(i) != got[i] {
			return fmt.Errorf("after the drain: received %d messages from world rank %d, which sent %d", e.Received(i),
				i, got[i])
		}
	}
	return nil
}

// send starts sends of the given lengths to the next rank.
func sendNext(w *mpiwrap.Comm, tags, lengths []int) ([]*mpiwrap.Request, error) {
	next, _ := neighbours(w)
	var out []*mpiwrap.Request
	for i, n := range lengths {
		s, err := mpiwrap.Isend(w, pattern(n, w.Rank(), tags[i]), next, tags[i])
		if err != nil {
			return out, err
		}
		out = append(out, s)
	}
	return out, nil
}

func drainOrder(w *mpiwrap.Comm) error {
	_, prev := neighbours(w)
	in := make([]float64, 10)
	posted, err := mpiwrap.Irecv(w, in, prev, 2)
	if err != nil {
		return err
	}
	sends, err := sendNext(w, []int{1, 2, 1, 2, 3}, []int{0, 5, 6, 1, 7})
	if err := all(err, Drain(w)); err != nil {
		return err
	}
	st, err := posted.Wait()
	if err := all(err, status("posted", st, prev, 2, 40),
		equalSlices("posted", in[:5], pattern(5, prev, 2))); err != nil {
		return err
	}
	// A receive posted now is satisfied by the mailbox.
	late, err := mpiwrap.Irecv(w, in, mpiwrap.AnySource, 2)
	if err != nil {
		return err
	}
	st, ok, err := late.Test()
	if err := all(err, equal("Irecv from the mailbox is complete", ok, true),
		status("late", st, prev, 2, 8)); err != nil {
		return err
	}
	for _, want := range []struct{ tag, n int }{{1, 0}, {1, 6}, {3, 7}} {
		st, err := mpiwrap.Recv(w, in, mpiwrap.AnySource, mpiwrap.AnyTag)
		if err := all(err, status("wildcard", st, prev, want.tag, 8*want.n),
			equalSlices("data", in[:want.n], pattern(want.n, prev, want.tag))); err != nil {
			return err
		}
	}
	return mpiwrap.WaitAll(sends...)
}

// drainBig: large messages from everyone to everyone, half of them received only
// after two drains.
func drainBig(w *mpiwrap.Comm) error {
	const n = 60_000
	var sends []*mpiwrap.Request
	for peer := range w.Size() {
		for tag := range 2 {
			s, err := mpiwrap.Isend(w, pattern(n+tag, w.Rank(), tag), peer, tag)
			if err != nil {
				return err
			}
			sends = append(sends, s)
		}
	}
	if err := all(Drain(w), Drain(w)); err != nil {
		return err
	}
	for peer := range w.Size() {
		in := make([]float64, n+1)
		for _, tag := range []int{1, 0} {
			st, err := mpiwrap.Recv(w, in, peer, tag)
			if err := all(err, status("big", st, peer, tag, 8*(n+tag)),
				equalSlices("data", in[:n+tag], pattern(n+tag, peer, tag))); err != nil {
				return err
			}
		}
	}
	ok, err := mpiwrap.TestAll(sends...)
	return all(err, equal("sends are complete at the cut", ok, true))
}

func drainCancel(w *mpiwrap.Comm) error {
	_, prev := neighbours(w)
	in := make([]float64, 4)
	hit, err := mpiwrap.Irecv(w, in, prev, 1)
	if err != nil {
		return err
	}
	miss, err := mpiwrap.Irecv(w, make([]float64, 4), prev, 2)
	if err != nil {
		return err
	}
	sends, err := sendNext(w, []int{1}, []int{4})
	if err := all(err, Drain(w), hit.Cancel(), miss.Cancel()); err != nil {
		return err
	}
	st, err := hit.Wait()
	if err := all(err, equal("drained match was cancelled", st.Cancelled, false),
		status("hit", st, prev, 1, 32)); err != nil {
		return err
	}
	st, err = miss.Wait()
	return all(err, equal("unmatched receive is cancelled", st.Cancelled, true), mpiwrap.WaitAll(sends...), Drain(w))
}

func drainProbe(w *mpiwrap.Comm) error {
	_, prev := neighbours(w)
	sends, err := sendNext(w, []int{4, 5}, []int{3, 2})
	if err := all(err, Drain(w)); err != nil {
		return err
	}
	st, err := w.Probe(mpiwrap.AnySource, 5)
	if err := all(err, status("Probe", st, prev, 5, 16)); err != nil {
		return err
	}
	st, ok, err := w.Iprobe(prev, mpiwrap.AnyTag)
	if err := all(err, equal("Iprobe", ok, true), status("Iprobe", st, prev, 4, 24)); err != nil {
		return err
	}
	m, err := w.Improbe(prev, 4)
	if err != nil || m == nil {
		return fmt.Errorf("no message from Improbe: %v %v", m, err)
	}
	if err := Drain(w); err != nil {
		return err
	}
	in := make([]float64, 3)
	st, err = mpiwrap.Mrecv(m, in)
	if err := all(err, status("Mrecv", st, prev, 4, 24), equalSlices("data", in, pattern(3, prev, 4))); err != nil {
		return err
	}
	_, err = mpiwrap.Recv(w, in, prev, 5)
	return all(err, mpiwrap.WaitAll(sends...), mprobeAcross(w))
}

// mprobeAcross: a message set aside in MPI is drained too.
func mprobeAcross(w *mpiwrap.Comm) error {
	_, prev := neighbours(w)
	sends, err := sendNext(w, []int{6}, []int{50_000})
	if err != nil {
		return err
	}
	m, err := w.Mprobe(prev, 6)
	if err := all(err, Drain(w)); err != nil {
		return err
	}
	in := make([]float64, 50_000)
	st, err := mpiwrap.Mrecv(m, in)
	return all(err, status("Mrecv", st, prev, 6, 400_000), equalSlices("data", in, pattern(50_000, prev, 6)),
		mpiwrap.WaitAll(sends...))
}

func drainTruncation(w *mpiwrap.Comm) error {
	_, prev := neighbours(w)
	sends, err := sendNext(w, []int{1, 1}, []int{9, 2})
	if err := all(err, Drain(w)); err != nil {
		return err
	}
	in := make([]float64, 4)
	_, err = mpiwrap.Recv(w, in, mpiwrap.AnySource, mpiwrap.AnyTag)
	if err := all(wantErr("truncated", err, mpiwrap.ErrTruncate),
		equalSlices("beginning", in, pattern(4, prev, 1))); err != nil {
		return err
	}
	st, err := mpiwrap.Recv(w, in, prev, 1)
	return all(err, status("next", st, prev, 1, 16), mpiwrap.WaitAll(sends...))
}

func drainCollectives(w *mpiwrap.Comm) error {
	sum := make([]int, 3)
	r, err := mpiwrap.Iallreduce(w, sum, []int{1, w.Rank(), 2}, mpiwrap.Sum)
	if err := all(err, Drain(w)); err != nil {
		return err
	}
	if err := equal("sum at the cut", sum[0], w.Size()); err != nil {
		return err
	}
	_, err = r.Wait()
	return err
}

// behindTheCut: the ranks leave a drain one after the other and send at once;
// nothing of that may be in the mailbox that a slower rank saves.
func behindTheCut(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	for i := range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		_, err := w.Endpoint().Drain(ctx)
		cancel()
		if err != nil {
			return err
		}
		if n, bytes := w.Endpoint().Mailbox(); n != 0 || bytes != 0 {
			return fmt.Errorf("round %d: %d messages in the mailbox after a drain of nothing", i, n)
		}
		s, err := mpiwrap.Isend(w, pattern(1+i%2*20_000, w.Rank(), i), next, i)
		if err != nil {
			return err
		}
		in := make([]float64, 20_001)
		if _, err := mpiwrap.Recv(w, in, prev, i); err != nil {
			return err
		}
		if _, err := s.Wait(); err != nil {
			return err
		}
	}
	return nil
}
