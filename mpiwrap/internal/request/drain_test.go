package request_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// drain empties the network and checks that nothing is left in flight.
func drain(w *mpiwrap.Comm) error {
	e := w.Endpoint()
	if _, err := e.Drain(context.Background()); err != nil {
		return err
	}
	sent := make([]uint64, w.Size())
	got := make([]uint64, w.Size())
	for i := range sent {
		sent[i] = e.Sent(i)
	}
	if err := mpiwrap.Alltoall(w.Private(), got, sent); err != nil {
		return err
	}
	for i := range got {
		if e.Received(i) != got[i] {
			return fmt.Errorf("rank %d has %d messages from %d, which sent %d", w.Rank(), e.Received(i), i, got[i])
		}
	}
	return nil
}

func TestDrainKeepsOrderAndPostedReceives(t *testing.T) {
	const big = 100_000 // over the eager limit: the sender needs the drain to complete
	onSim(t, 3, func(w *mpiwrap.Comm) error {
		next, prev := (w.Rank()+1)%3, (w.Rank()+2)%3
		posted, err := mpiwrap.Irecv(w, make([]byte, 10), prev, 2)
		if err != nil {
			return err
		}
		var sends []*mpiwrap.Request
		for i, n := range []int{0, 5, big, 1, 7} {
			s, err := mpiwrap.Isend(w, make([]byte, n), next, []int{1, 2, 1, 2, 3}[i])
			if err != nil {
				return err
			}
			sends = append(sends, s)
		}
		if err := drain(w); err != nil {
			return err
		}
		// The second message belongs to the posted receive, the others wait in order.
		if st, err := posted.Wait(); err != nil || st.Bytes != 5 {
			return fmt.Errorf("posted receive: %+v %v", st, err)
		}
		for i, want := range []struct{ tag, bytes int }{{1, 0}, {1, big}, {2, 1}, {3, 7}} {
			st, err := mpiwrap.Recv(w, make([]byte, big), mpiwrap.AnySource, mpiwrap.AnyTag)
			if err != nil || st.Tag != want.tag || st.Bytes != want.bytes || st.Source != prev {
				return fmt.Errorf("message %d: %+v %v", i, st, err)
			}
		}
		return mpiwrap.WaitAll(sends...)
	})
}

func TestDrainGivesUpAndTriesAgain(t *testing.T) {
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		ctx, cancel := context.WithCancel(context.Background())
		if w.Rank() == 0 {
			cancel()
		}
		defer cancel()
		if w.Rank() == 1 {
			if err := mpiwrap.Send(w, []int{1, 2, 3}, 0, 4); err != nil {
				return err
			}
		}
		if _, err := w.Endpoint().Drain(ctx); !errors.Is(err, mpiwrap.ErrDrainIncomplete) {
			return fmt.Errorf("got %v, want ErrDrainIncomplete", err)
		}
		if err := drain(w); err != nil {
			return err
		}
		if w.Rank() == 0 {
			buf := make([]int, 3)
			if _, err := mpiwrap.Recv(w, buf, 1, 4); err != nil || buf[2] != 3 {
				return fmt.Errorf("received %v: %v", buf, err)
			}
		}
		return nil
	})
}

func TestMailboxSurvivesARestart(t *testing.T) {
	saved := make([][]byte, 2)
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		sub, err := again.dup(w)
		if err != nil {
			return err
		}
		for tag := range 3 {
			if err := mpiwrap.Send(sub, []int{tag, w.Rank()}, 1-w.Rank(), tag); err != nil {
				return err
			}
		}
		if err := drain(w); err != nil {
			return err
		}
		saved[w.Rank()], err = w.Endpoint().SaveMailbox()
		return err
	})
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		if err := loadMailbox(w.Endpoint(), saved[w.Rank()]); err != nil {
			return err
		}
		sub, err := again.dup(w)
		if err != nil {
			return err
		}
		buf := make([]int, 2)
		for _, tag := range []int{2, mpiwrap.AnyTag, 1} {
			if _, err := mpiwrap.Recv(sub, buf, 1-w.Rank(), tag); err != nil {
				return err
			}
		}
		if buf[0] != 1 || buf[1] != 1-w.Rank() {
			return fmt.Errorf("last message %v", buf)
		}
		return nil
	})
}

func TestMailboxRefusesWhatDoesNotFit(t *testing.T) {
	var saved []byte
	if err := mpitest.Run(2, 0, func(w *mpiwrap.Comm) (err error) {
		if w.Rank() == 0 {
			saved, err = w.Endpoint().SaveMailbox()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	one := mpiwrap.Single().Endpoint()
	for name, b := range map[string][]byte{"other size": saved, "empty": nil, "short": saved[:len(saved)-1],
		"noise": []byte("0123456789abcdef")} {
		if err := loadMailbox(one, b); !errors.Is(err, mpiwrap.ErrMailbox) {
			t.Errorf("%s: got %v, want ErrMailbox", name, err)
		}
	}
}
