package request_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// until polls what a rank publishes, as an agent does, and fails the test when it
// never becomes what it should.
func until(e endpoint.Endpoint, ok func(a endpoint.Activity) bool) (endpoint.Activity, error) {
	deadline := time.Now().Add(2 * time.Minute)
	for {
		a := e.Activity()
		if ok(a) {
			return a, nil
		}
		if time.Now().After(deadline) {
			return a, fmt.Errorf("activity stays %+v", a)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// TestBlockedCallsArePublished blocks rank 1 in one call after the other; rank 0
// looks at what is published from outside and then releases it.
func TestBlockedCallsArePublished(t *testing.T) {
	ends := make(chan endpoint.Endpoint, 1)
	type blocked struct {
		op   string
		call func(w, sub *mpiwrap.Comm) error // on rank 1
		free func(w, sub *mpiwrap.Comm) error // on rank 0
		want func(a endpoint.Activity) bool
	}
	big := make([]byte, 1<<20)
	send := func(w, _ *mpiwrap.Comm) error { return mpiwrap.Send(w, []int{1}, 1, 7) }
	calls := []blocked{
		{"Recv", func(w, _ *mpiwrap.Comm) error { _, err := mpiwrap.Recv(w, []int{0}, 0, 7); return err }, send,
			func(a endpoint.Activity) bool {
				return a.Comm == "world" && len(a.Waits) == 1 && a.Waits[0].Source == 0 && a.Waits[0].Tag == 7 &&
					!a.Waits[0].Send
			}},
		{"Recv", func(_, sub *mpiwrap.Comm) error {
			_, err := mpiwrap.Recv(sub, []int{0}, mpiwrap.AnySource, mpiwrap.AnyTag)
			return err
		}, func(_, sub *mpiwrap.Comm) error { return mpiwrap.Send(sub, []int{1}, 0, 9) },
			func(a endpoint.Activity) bool {
				w := a.Waits
				return a.Comm == "world.1[1]" && len(w) == 1 && w[0].Source == mpiwrap.AnySource &&
					slices.Equal(w[0].Members, []int{1, 0})
			}},
		{"Send", func(w, _ *mpiwrap.Comm) error { return mpiwrap.Send(w, big, 0, 3) },
			func(w, _ *mpiwrap.Comm) error { _, err := mpiwrap.Recv(w, big, 1, 3); return err },
			func(a endpoint.Activity) bool { return len(a.Waits) == 1 && a.Waits[0].Send && a.Waits[0].Peer == 0 }},
		{"Sendrecv", func(w, _ *mpiwrap.Comm) error { // from ProcNull: only a send
			_, err := mpiwrap.Sendrecv(w, big, 0, 3, []int{0}, mpiwrap.ProcNull, 4)
			return err
		}, func(w, _ *mpiwrap.Comm) error { _, err := mpiwrap.Recv(w, big, 1, 3); return err },
			func(a endpoint.Activity) bool {
				return len(a.Waits) == 1 && a.Waits[0].Send && a.Waits[0].Peer == 0
			}},
		{"Sendrecv", func(w, _ *mpiwrap.Comm) error { // what it receives is in the mailbox
			if err := mpiwrap.Send(w, []int{1}, 1, 5); err != nil {
				return err
			}
			for n := 0; n == 0; n, _ = w.Endpoint().Mailbox() {
				if _, err := w.Endpoint().DrainSome(); err != nil {
					return err
				}
			}
			_, err := mpiwrap.Sendrecv(w, big, 0, 3, []int{0}, 1, 5)
			return err
		}, func(w, _ *mpiwrap.Comm) error { _, err := mpiwrap.Recv(w, big, 1, 3); return err },
			func(a endpoint.Activity) bool {
				return len(a.Waits) == 1 && a.Waits[0].Send && a.Waits[0].Peer == 0
			}},
		{"Sendrecv", func(w, _ *mpiwrap.Comm) error { // to ProcNull: only a receive
			_, err := mpiwrap.Sendrecv(w, big, mpiwrap.ProcNull, 3, []int{0}, 0, 7)
			return err
		}, send, func(a endpoint.Activity) bool {
			return len(a.Waits) == 1 && !a.Waits[0].Send &&
				a.Waits[0].Source == 0
		}},
		{"Probe", func(w, _ *mpiwrap.Comm) error {
			if _, err := w.Probe(0, 7); err != nil {
				return err
			}
			_, err := mpiwrap.Recv(w, []int{0}, 0, 7)
			return err
		}, send, func(a endpoint.Activity) bool { return len(a.Waits) == 1 && a.Waits[0].Source == 0 }},
		{"Barrier", func(_, sub *mpiwrap.Comm) error { return sub.Barrier() },
			func(_, sub *mpiwrap.Comm) error { return sub.Barrier() },
			func(a endpoint.Activity) bool { return a.Collective && a.Comm == "world.1[1]" }},
		{"WaitAll", func(w, _ *mpiwrap.Comm) error {
			a, err := mpiwrap.Irecv(w, []int{0}, 0, 7)
			if err != nil {
				return err
			}
			b, err := mpiwrap.Irecv(w, []int{0}, 0, 8)
			if err != nil {
				return err
			}
			return mpiwrap.WaitAll(a, nil, b)
		}, func(w, _ *mpiwrap.Comm) error {
			return errors.Join(mpiwrap.Send(w, []int{1}, 1, 7), mpiwrap.Send(w, []int{1}, 1, 8))
		}, func(a endpoint.Activity) bool { return a.All && len(a.Waits) == 2 && a.Waits[1].Tag == 8 }},
		{"Allreduce", func(w, _ *mpiwrap.Comm) error {
			r, err := mpiwrap.Iallreduce(w, []int{0}, []int{1}, mpiwrap.Sum)
			if err != nil {
				return err
			}
			_, err = r.Wait()
			return err
		}, func(w, _ *mpiwrap.Comm) error { return mpiwrap.Allreduce(w, []int{0}, []int{1}, mpiwrap.Sum) },
			func(a endpoint.Activity) bool { return a.Collective && a.Comm == "world" }},
	}
	err := mpitest.NewWorld(2, mpitest.Options{EagerBytes: 64}).Run(func(w *mpiwrap.Comm) error {
		sub, err := w.Split(0, -w.Rank())
		if err != nil {
			return err
		}
		if w.Rank() == 1 {
			ends <- w.Endpoint()
			for _, c := range calls {
				if err := c.call(w, sub); err != nil {
					return fmt.Errorf("%s: %w", c.op, err)
				}
			}
			return nil
		}
		e := <-ends
		last := uint64(0)
		for _, c := range calls {
			a, err := until(e, func(a endpoint.Activity) bool {
				return a.Blocked && a.Op == c.op && a.Seq > last && c.want(a)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", c.op, err)
			}
			if b := e.Activity(); b.Seq != a.Seq {
				return fmt.Errorf("%s: seq went from %d to %d in one call", c.op, a.Seq, b.Seq)
			}
			last = a.Seq
			if err := c.free(w, sub); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCountsAndCollectives(t *testing.T) {
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		sub, err := w.Dup()
		if err != nil {
			return err
		}
		e, peer := w.Endpoint(), 1-w.Rank()
		err = errors.Join(mpiwrap.Send(sub, []int{1}, peer, 0), w.Barrier(), w.Private().Barrier())
		if err != nil {
			return err
		}
		_, err = mpiwrap.Recv(sub, []int{0}, peer, 0)
		if err != nil || e.Sent(peer) != 1 || e.Received(peer) != 1 || e.Sent(w.Rank()) != 0 {
			return fmt.Errorf("sent %d received %d: %v", e.Sent(peer), e.Received(peer), err)
		}
		got := fmt.Sprint(e.Collectives())
		if want := "[{world 0 2 2} {world.1 0 2 0}]"; got != want { // Dup and Barrier
			return fmt.Errorf("collectives %s, want %s", got, want)
		}
		if _, ok, err := w.Iprobe(peer, 5); ok || err != nil || polls(e) != 1 {
			return fmt.Errorf("polls %d", polls(e))
		}
		return nil
	})
}

func TestTwoCallsAtOnceAreRefused(t *testing.T) {
	checked := make(chan struct{})
	err := mpitest.NewWorld(2, mpitest.Options{}).Run(func(w *mpiwrap.Comm) error {
		if w.Rank() == 1 {
			<-checked
			return mpiwrap.Send(w, []int{1}, 0, 2)
		}
		defer close(checked)
		failed := make(chan error, 1)
		go func() {
			_, err := mpiwrap.Recv(w, []int{0}, 1, 2)
			failed <- err
		}()
		if _, err := until(w.Endpoint(), func(a endpoint.Activity) bool { return a.Blocked }); err != nil {
			return err
		}
		_, _, iprobe := w.Iprobe(0, 0)
		for _, err := range []error{mpiwrap.Send(w, []int{1}, 1, 1), w.Barrier(), iprobe} {
			var e *mpiwrap.Error
			if !errors.Is(err, mpiwrap.ErrConcurrent) || !errors.As(err, &e) || e.Comm != "world" {
				return fmt.Errorf("got %v, want ErrConcurrent", err)
			}
		}
		checked <- struct{}{}
		return <-failed
	})
	if err != nil {
		t.Fatal(err)
	}
}

func polls(e endpoint.Endpoint) uint64 {
	_, n := e.Polling()
	return n
}
