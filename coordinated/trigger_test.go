package coordinated

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect/connecttest"
	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestIntervalAndDeadline runs a program on virtual time until its deadline
// stops it, with a lead that leaves time to compute and with one that does not.
func TestIntervalAndDeadline(t *testing.T) {
	for lead, stops := range map[time.Duration]time.Duration{30 * time.Second: 70 * time.Second,
		5 * time.Minute: 50 * time.Second} {
		t.Run(lead.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runToDeadline(t, lead, stops) })
		})
	}
}

// runToDeadline expects that the final checkpoint stops a program of 100 s then.
func runToDeadline(t *testing.T, lead, stops time.Duration) {
	opt, err := memOptions()
	if err != nil {
		t.Fatal(err)
	}
	opt.plane = connecttest.NewNet(2).Plane
	opt.Keep = 100
	opt.Interval = 10 * time.Second
	opt.Deadline, opt.DeadlineLead = time.Now().Add(100*time.Second), lead
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
		most := int(stops/opt.Interval) + 1
		if n := len(ck.Stats().Epochs); n < most-3 || n > most {
			t.Errorf("%d epochs in %v at one every 10 s and a final one", n, stops)
		}
		if !errors.Is(err, ErrStop) {
			return err
		}
		return ck.Close()
	})
	if err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d < stops-time.Second || d > stops+5*time.Second {
		t.Errorf("stopped after %v, want %v", d, stops)
	}
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
				opt.plane = connecttest.NewNet(2).Plane
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
