package request_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
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

// TestSparseDrain drains worlds in which few pairs talk, again and again, with
// ranks that give up at random turns: a drain that succeeds has everything.
func TestSparseDrain(t *testing.T) {
	defer func(n int) { driver.DenseRanks = n }(driver.DenseRanks)
	driver.DenseRanks = 0
	const n = 5
	for seed := range uint64(30) {
		plan := rand.New(rand.NewPCG(seed, 1)) // the same on all ranks
		type step struct{ from, to, quitter int }
		var steps []step
		for i := range 12 { // who gives up finishes in the next drain what it left
			quitter := n
			if i%2 == 0 {
				quitter = plan.IntN(2 * n)
			}
			steps = append(steps, step{plan.IntN(n), plan.IntN(n), quitter})
		}
		err := mpitest.Run(n, seed, func(w *mpiwrap.Comm) error {
			e := w.Endpoint()
			want := make([]uint64, n)
			for i, s := range steps {
				if w.Rank() == s.from {
					if err := mpiwrap.Send(w, []int{i}, s.to, 1); err != nil {
						return err
					}
				}
				if w.Rank() == s.to {
					want[s.from]++
				}
				ctx, cancel := context.WithCancel(context.Background())
				if w.Rank() == s.quitter {
					cancel()
				}
				_, err := e.Drain(ctx)
				cancel()
				if gaveUp := errors.Is(err, mpiwrap.ErrDrainIncomplete); gaveUp != (s.quitter < n) || !gaveUp &&
					err != nil {
					return fmt.Errorf("step %d: rank %d was to give up: %w", i, s.quitter, err)
				}
				for r := range want {
					if got := e.Received(r); err == nil && got != want[r] {
						return fmt.Errorf("step %d: %d messages from rank %d, want %d", i, got, r, want[r])
					}
				}
			}
			_, err := e.Drain(context.Background())
			return err
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// failing is a driver whose first probes fail.
type failing struct {
	driver.Driver
	left int
}

func (f *failing) Improbe(source, tag int, c driver.Handle) (driver.Handle, driver.Status, bool, error) {
	if f.left > 0 {
		f.left--
		return 0, driver.Status{}, false, &driver.Error{Class: driver.ClassIntern, Text: "out of memory"}
	}
	return f.Driver.Improbe(source, tag, c)
}

// TestDrainsStayInStep: drains fail on one rank, by an error of MPI or because its time is
// up, several times in a row. All ranks fail alike, and the next drain is right.
func TestDrainsStayInStep(t *testing.T) {
	for _, dense := range []int{driver.DenseRanks, 0} {
		old := driver.DenseRanks
		driver.DenseRanks = dense
		for _, how := range []string{"MPI fails", "no time", "no time anywhere"} {
			t.Run(fmt.Sprintf("%s/dense up to %d", how, dense), func(t *testing.T) { inStep(t, how) })
		}
		driver.DenseRanks = old
	}
}

func inStep(t *testing.T, how string) {
	const n, rounds = 3, 6
	world := sim.New(n, sim.Options{Delay: 0.3})
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			defer world.Finish(i)
			f := &failing{Driver: world.Rank(i)}
			errs[i] = func() error {
				w, err := over(f)
				if err != nil {
					return err
				}
				for round := range rounds {
					if err := mpiwrap.Send(w, []int{round}, (i+1)%n, round); err != nil {
						return err
					}
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					switch bad := round%3 < 2; {
					case bad && how == "no time anywhere", bad && how == "no time" && i == 1:
						cancel()
					case bad && how == "MPI fails" && i == 1:
						f.left = 1
					}
					_, err := w.Endpoint().Drain(ctx)
					if round%3 < 2 {
						if err == nil || how != "MPI fails" && !errors.Is(err, mpiwrap.ErrDrainIncomplete) ||
							how == "MPI fails" && i == 1 && errors.Is(err, mpiwrap.ErrDrainIncomplete) {
							return fmt.Errorf("round %d: got %v", round, err)
						}
						continue
					}
					if err != nil {
						return fmt.Errorf("round %d: %w", round, err)
					}
					e := w.Endpoint()
					if sent, got := e.Sent((i+1)%n), e.Received((i+n-1)%n); sent != uint64(round+1) || got != sent {
						return fmt.Errorf("round %d: sent %d, drained %d", round, sent, got)
					}
				}
				return nil
			}()
			if errs[i] != nil {
				world.Abort(errs[i])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// refusing is a driver whose sends fail.
type refusing struct {
	driver.Driver
	refuse bool
}

func (r *refusing) Send(m driver.Mode, buf []byte, dest, tag int, c driver.Handle) error {
	if r.refuse {
		return &driver.Error{Class: driver.ClassIntern, Text: "out of memory"}
	}
	return r.Driver.Send(m, buf, dest, tag, c)
}

// TestSendrecvKeepsItsMessage: a drained message is still there after a Sendrecv that
// could not send, and what was not sent is not counted.
func TestSendrecvKeepsItsMessage(t *testing.T) {
	d := &refusing{Driver: sim.New(1, sim.Options{}).Rank(0)}
	w, err := over(d)
	if err != nil {
		t.Fatal(err)
	}
	e := w.Endpoint()
	drained := func() {
		t.Helper()
		if _, err := e.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(mpiwrap.Send(w, []int{8}, 0, 2), mpiwrap.Send(w, []int{7}, 0, 1)); err != nil {
		t.Fatal(err)
	}
	drained()
	d.refuse = true
	got := []int{0}
	if _, err := mpiwrap.Sendrecv(w, []int{9}, 0, 3, got, 0, 1); err == nil {
		t.Fatal("a send that fails has no error")
	}
	d.refuse = false
	drained()
	st, err := mpiwrap.Sendrecv(w, []int{9}, 0, 3, got, mpiwrap.AnySource, 1)
	if err != nil || got[0] != 7 || st.Source != 0 {
		t.Errorf("tried again: got %v of %+v, %v; want 7", got, st, err)
	}
	for _, want := range []int{8, 9} {
		if _, err := mpiwrap.Recv(w, got, 0, mpiwrap.AnyTag); err != nil || got[0] != want {
			t.Errorf("got %v, %v; want %d", got, err, want)
		}
	}
}
