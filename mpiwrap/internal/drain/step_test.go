package drain_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
)

// failing is a driver whose probes fail for a while.
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

// over builds a world on a rank's driver.
func over(d driver.Driver) (*mpiwrap.Comm, error) {
	c, err := sim.Over(d, nil)
	if err != nil {
		return nil, err
	}
	return c.(*mpiwrap.Comm), nil
}
