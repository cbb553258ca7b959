package mpitest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

func TestDeadlockSaysWhoWaitsForWhat(t *testing.T) {
	err := mpitest.NewWorld(3, mpitest.Options{}).Run(func(w *mpiwrap.Comm) error {
		switch w.Rank() {
		case 0:
			_, err := mpiwrap.Recv(w, []int{0}, 1, 42)
			return err
		case 1:
			return w.Barrier()
		}
		return nil
	})
	for _, word := range []string{"rank 0 in receive from 1 tag 42", "rank 1 in Barrier", "rank 2 returned"} {
		if !errors.Is(err, mpitest.ErrDeadlock) || !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in %v", word, err)
		}
	}
}

func TestMismatchedCollectivesFailOnAllRanks(t *testing.T) {
	err := mpitest.NewWorld(2, mpitest.Options{}).Run(func(w *mpiwrap.Comm) error {
		err := w.Barrier()
		if w.Rank() == 0 {
			err = errors.Join(err, mpiwrap.Allreduce(w, []int{0}, []int{1}, mpiwrap.Sum))
		} else {
			err = errors.Join(err, w.Barrier())
		}
		if err == nil || !strings.Contains(err.Error(), "disagree") {
			return fmt.Errorf("got %v, want a disagreement", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestEveryCallIsAnEvent: calls are numbered, per rank and in all, and one can
// kill its rank.
func TestEveryCallIsAnEvent(t *testing.T) {
	var world *mpitest.World
	ops := make([][]string, 2)
	world = mpitest.NewWorld(2, mpitest.Options{OnCall: func(c mpitest.Call) {
		ops[c.Rank] = append(ops[c.Rank], c.Op)
		if len(ops[c.Rank]) != c.N || c.All < c.N {
			t.Errorf("call %+v, have %v", c, ops[c.Rank])
		}
		if c.Rank == 1 && c.Op == "Recv" {
			world.Kill(1)
		}
	}})
	err := world.Run(func(w *mpiwrap.Comm) error {
		if err := mpiwrap.Send(w, []int{1}, 1-w.Rank(), 0); err != nil {
			return err
		}
		if w.Rank() == 0 {
			return w.Barrier()
		}
		_, err := mpiwrap.Recv(w, []int{0}, 0, 0)
		return err
	})
	if !errors.Is(err, mpitest.ErrKilled) || !errors.Is(err, mpitest.ErrDeadlock) {
		t.Errorf("got %v, want rank 1 killed and rank 0 stuck", err)
	}
	if got := fmt.Sprint(ops); got != "[[Send Barrier] [Send Recv]]" {
		t.Errorf("calls %s", got)
	}
}

func TestAbortEndsBlockedCalls(t *testing.T) {
	reason := errors.New("the test has seen enough")
	w := mpitest.NewWorld(2, mpitest.Options{})
	err := w.Run(func(c *mpiwrap.Comm) error {
		if c.Rank() == 0 {
			w.Abort(reason)
			return nil
		}
		return c.Barrier()
	})
	if !errors.Is(err, reason) {
		t.Errorf("got %v, want the reason of the abort", err)
	}
}

func TestPanicOfARankIsItsError(t *testing.T) {
	err := mpitest.Run(1, 0, func(*mpiwrap.Comm) error { panic("out of cheese") })
	if err == nil || !strings.Contains(err.Error(), "rank 0: panic: out of cheese") {
		t.Errorf("got %v", err)
	}
}

// TestSingle: a world of one rank without MPI computes, and says what it is.
func TestSingle(t *testing.T) {
	w := mpiwrap.Single()
	if err := mpitest.Check(w, mpitest.Suite()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(w.Library(), "simulated") || !strings.Contains(w.Library(), "no MPI") {
		t.Errorf("Library() = %q", w.Library())
	}
}

// TestDelayReorders: with delays, messages of two senders are seen in both
// orders; those of one sender never change places.
func TestDelayReorders(t *testing.T) {
	first := map[int]int{}
	for seed := range uint64(40) {
		err := mpitest.NewWorld(3, mpitest.Options{Seed: seed, Delay: 0.5}).Run(func(w *mpiwrap.Comm) error {
			if w.Rank() > 0 {
				for i := range 3 {
					if err := mpiwrap.Send(w, []int{i}, 0, 0); err != nil {
						return err
					}
				}
			}
			if err := w.Barrier(); err != nil || w.Rank() > 0 {
				return err
			}
			next := map[int]int{}
			for i := range 6 {
				in := []int{0}
				st, err := mpiwrap.Recv(w, in, mpiwrap.AnySource, 0)
				if err != nil || in[0] != next[st.Source] {
					return fmt.Errorf("message %d of rank %d came before %d: %v", in[0], st.Source, next[st.Source],
						err)
				}
				next[st.Source]++
				if i == 0 {
					first[st.Source]++
				}
			}
			return nil
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if first[1] == 0 || first[2] == 0 {
		t.Errorf("the first message came from %v in 40 seeds; want both ranks", first)
	}
}
