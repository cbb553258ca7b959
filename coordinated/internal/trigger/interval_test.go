package trigger_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect/connecttest"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// inMemory returns a job of two ranks on a file system in memory, and what its options say by default.
func inMemory(t *testing.T) (context.Context, *crashfs.FS, coordinated.Options) {
	t.Helper()
	t.Chdir(t.TempDir()) // without a file of settings
	files := crashfs.New()
	files.MkdirAll("/local")
	opt := coordinated.FromEnv()
	opt.Job, opt.Local, opt.CheckpointSignals, opt.StopSignals = "moments", "/local", []os.Signal{}, []os.Signal{}
	opt.Fanout, opt.CutTimeout, opt.DeadlineLead = 2, 2*time.Minute, 0
	opt.Logger, opt.OnLost = slog.New(slog.DiscardHandler), func(*coordinated.LostError) {}
	ctx := connect.WithSeam(context.Background(), connect.Seam{Plane: connecttest.NewNet(2).Plane})
	return vfs.With(ctx, files), files, opt
}

// TestDefaultInterval: on virtual time, a program whose settings say nothing takes its first checkpoint after 7 minutes
// and, however cheap that was, no other before 7 more. One that never reaches a point is not asked, and not warned.
func TestDefaultInterval(t *testing.T) {
	for name, points := range map[string]bool{"points": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log testbuf.Buffer
				ctx, _, opt := inMemory(t)
				opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
				if err := mpitest.NewWorld(2, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
					return computeFor(ctx, world, opt, 20*time.Minute, points, t)
				}); err != nil {
					t.Fatal(err)
				}
				out := log.String()
				if !strings.Contains(out, "by the clock: the first after 6m55s") ||
					strings.Contains(out, "level=WARN") || strings.Contains(out, "level=ERROR") {
					t.Error(out)
				}
			})
		})
	}
}

// computeFor reaches a Point each second for a time, or none.
func computeFor(ctx context.Context, world *mpiwrap.Comm, opt coordinated.Options, d time.Duration, points bool,
	t *testing.T) error {
	ck, err := coordinated.Open(ctx, world, opt)
	if err != nil {
		return err
	}
	if _, err := ck.Restore(context.Background()); err != nil {
		return err
	}
	var at []time.Duration
	for begun, epochs := time.Now(), 0; time.Since(begun) < d; time.Sleep(time.Second) {
		if !points {
			continue
		}
		if err := ck.Point(context.Background()); err != nil {
			return err
		}
		if n := len(ck.Stats().Epochs); n > epochs {
			epochs, at = n, append(at, time.Since(begun).Round(time.Minute))
		}
	}
	if want := 2; len(at) != want && points || len(at) != 0 && !points {
		t.Errorf("checkpoints at %v", at)
	} else if points && (at[0] != 7*time.Minute || at[1] != 14*time.Minute) {
		t.Errorf("checkpoints at %v", at)
	}
	return ck.Close()
}

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
	ctx, _, opt := inMemory(t)
	opt.Keep = 100
	opt.Interval = 10 * time.Second
	opt.Deadline, opt.DeadlineLead = time.Now().Add(100*time.Second), lead
	begin := time.Now()
	err := mpitest.NewWorld(2, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
		ck, err := coordinated.Open(ctx, world, opt)
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
		if !errors.Is(err, coordinated.ErrStop) {
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
				ctx, files, opt := inMemory(t)
				opt.CutTimeout = 20 * time.Second
				begin := time.Now()
				files.SetRule(func(op crashfs.Op) error {
					if op.Kind == "create" && strings.Contains(op.Name, "epoch-") && time.Since(begin) < c.failed {
						return syscall.ENOSPC
					}
					return nil
				})
				err := mpitest.NewWorld(2, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
					ck, err := coordinated.Open(ctx, world, opt)
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
					if !errors.Is(err, coordinated.ErrStop) {
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
