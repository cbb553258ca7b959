package mpiwrap

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
)

// TestRestart: what one life of a program leaves behind (a message, receives that nobody
// answers, a communicator, a window, a prepared request) is not there in the next, which
// names and counts from the beginning.
func TestRestart(t *testing.T) {
	err := ranks(3, func(w *Comm) error {
		for range 3 {
			world, end, err := endpoint.Restart(w, nil)
			if err != nil {
				return err
			}
			pending, err := litter(world)
			if err := errors.Join(err, untouched(w), end()); err != nil {
				return err
			}
			if _, err := pending.Wait(); !errors.Is(err, ErrRequest) {
				return fmt.Errorf("a receive of a world that has ended: %v", err)
			}
			if err := world.Barrier(); !errors.Is(err, ErrFinalized) {
				return fmt.Errorf("a barrier in a world that has ended: %v", err)
			}
		}
		return errors.Join(untouched(w), w.Barrier())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// untouched says what has happened in a world.
func untouched(w *Comm) error {
	st, there, err := w.Iprobe(AnySource, AnyTag)
	if there || err != nil {
		return fmt.Errorf("there is a message: %+v %v", st, err)
	}
	e := endpoint.Of(w)
	for r := range w.Size() {
		if s, n := e.Sent(r), e.Received(r); s+n != 0 {
			return fmt.Errorf("%d messages sent to rank %d and %d received from it", s, r, n)
		}
	}
	if all := e.Collectives(); len(all) != 1 || all[0].Entered != 0 {
		return fmt.Errorf("communicators and their collectives: %+v", all)
	}
	return nil
}

// litter leaves things behind in a world in which nothing has happened, and returns a receive that
// is pending.
func litter(w *Comm) (*Request, error) {
	if err := untouched(w); err != nil {
		return nil, err
	}
	c, err := w.Dup()
	if err != nil {
		return nil, err
	}
	if c.Name() != "world.1" {
		return nil, fmt.Errorf("the first communicator is called %s", c.Name())
	}
	next := (w.Rank() + 1) % w.Size()
	pending, err1 := Irecv(w, make([]int, 1), AnySource, 9)
	_, err2 := Irecv(c, make([]int, 100), AnySource, 9)
	_, err3 := WinAllocate[int](c, 4)
	prepared, err4 := RecvInit(w, make([]int, 1), next, 3)
	return pending, errors.Join(err1, err2, err3, err4, Start(prepared), Send(w, []int{1}, next, 1),
		Send(c, []int{1, 2}, next, 2))
}
