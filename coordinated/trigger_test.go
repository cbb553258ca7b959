package coordinated

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestDalyInterval compares with the minimum of Daly's run-time model, found by
// searching: T(τ) = M e^(R/M) (e^((τ+δ)/M) − 1) Ts/τ has its minimum over τ where
// R and Ts do not matter.
func TestDalyInterval(t *testing.T) {
	for _, c := range []struct{ cost, mtbf time.Duration }{{10 * time.Second, time.Hour}, {time.Second, 24 * time.Hour},
		{5 * time.Minute, time.Hour}, {20 * time.Millisecond, 6 * time.Hour}} {
		got := DalyInterval(c.cost, c.mtbf).Seconds()
		m, d := c.mtbf.Seconds(), c.cost.Seconds()
		runTime := func(tau float64) float64 { return (math.Exp((tau+d)/m) - 1) / tau }
		best := math.Inf(1)
		at := 0.0
		for tau := d / 100; tau < 3*m; tau *= 1.0005 {
			if v := runTime(tau); v < best {
				best, at = v, tau
			}
		}
		// The estimate drops terms of the order of (δ/2M)^(3/2); what counts is that
		// the run time is within a thousandth of the best.
		if runTime(got) > best*1.001 {
			t.Errorf("cost %v, MTBF %v: got %.2f s, the best is %.2f s", c.cost, c.mtbf, got, at)
		}
	}
	if got := DalyInterval(3*time.Hour, time.Hour); got != time.Hour {
		t.Errorf("a cost over twice the MTBF: got %v, want the MTBF", got)
	}
	if got := DalyInterval(0, time.Hour); got <= 0 {
		t.Errorf("no cost: got %v", got)
	}
}

func TestTriggerOrder(t *testing.T) {
	start := time.Unix(1000, 0)
	tr := newTrigger(&Options{Interval: 10 * time.Second, Deadline: start.Add(time.Minute),
		DeadlineLead: 35 * time.Second}, start)
	type ask struct {
		at   time.Duration
		stop bool
	}
	var got []ask
	for now := start; now.Before(start.Add(2 * time.Minute)); now = now.Add(time.Second) {
		if yes, stop := tr.due(now); yes {
			got = append(got, ask{now.Sub(start), stop})
			if !stop {
				tr.plan(now.Add(time.Second), 0) // it takes a second
			}
		}
	}
	want := []ask{{10 * time.Second, false}, {21 * time.Second, false}, {25 * time.Second, true}}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

// TestIntervalAndDeadline runs a program on virtual time until its deadline
// stops it.
func TestIntervalAndDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt, err := memOptions()
		if err != nil {
			t.Fatal(err)
		}
		opt.plane = newMemNet(2).plane
		opt.Keep = 100
		opt.Interval = 10 * time.Second
		opt.Deadline, opt.DeadlineLead = time.Now().Add(100*time.Second), 30*time.Second
		begin := time.Now()
		err = mpitest.NewWorld(2, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
			ck, err := Open(context.Background(), world, opt)
			if err != nil {
				return err
			}
			if _, err := ck.Restore(context.Background()); err != nil {
				return err
			}
			for err == nil {
				time.Sleep(time.Second) // the program computes, on virtual time
				err = ck.Point(context.Background())
			}
			n := len(ck.Stats().Epochs)
			if n < 5 || n > 8 {
				t.Errorf("%d epochs in 70 s at one every 10 s and a final one", n)
			}
			if !errors.Is(err, ErrStop) {
				return err
			}
			return ck.Close()
		})
		if err != nil {
			t.Error(err)
		}
		if d := time.Since(begin); d < 69*time.Second || d > 75*time.Second {
			t.Errorf("stopped after %v, want 70 s", d)
		}
	})
}

// TestFinalAgain: a final checkpoint that is given up, because the program takes
// longer from Point to Point, or that cannot be written, is asked for again until
// it stops the program.
func TestFinalAgain(t *testing.T) {
	for _, c := range []struct {
		name         string
		step, failed time.Duration // from Point to Point; until when nothing can be written
		least, most  time.Duration // until the program stops
	}{
		{"given up", 45 * time.Second, 0, 45 * time.Second, 3 * time.Minute},
		{"not written", time.Second, 50 * time.Second, 50 * time.Second, 100 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opt, err := memOptions()
				if err != nil {
					t.Fatal(err)
				}
				opt.plane = newMemNet(2).plane
				opt.CutTimeout = 20 * time.Second
				begin := time.Now()
				opt.files.(*crashfs.FS).SetRule(func(op crashfs.Op) error {
					if op.Kind == "create" && strings.Contains(op.Name, "epoch-") && time.Since(begin) < c.failed {
						return syscall.ENOSPC
					}
					return nil
				})
				err = mpitest.NewWorld(2, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
					ck, err := Open(t.Context(), world, opt)
					if err != nil {
						return err
					}
					if _, err := ck.Restore(t.Context()); err != nil {
						return err
					}
					if world.Rank() == 1 {
						err = ck.RequestStop(t.Context())
					}
					for err == nil && time.Since(begin) < 2*c.most {
						time.Sleep(c.step) // the program computes, on virtual time
						err = ck.Point(t.Context())
					}
					if !errors.Is(err, ErrStop) {
						ck.Abort(err)
						return fmt.Errorf("rank %d got %w, want ErrStop", world.Rank(), err)
					}
					return ck.Close()
				})
				if err != nil {
					t.Error(err)
				}
				if d := time.Since(begin); d < c.least || d > c.most {
					t.Errorf("stopped after %v, want between %v and %v", d, c.least, c.most)
				}
			})
		})
	}
}
