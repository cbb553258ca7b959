package coordinated

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect/connecttest"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/internal/testbuf"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage"
)

// TestTiming: settings that say nothing of the time take checkpoints at Daly's interval for a day. What the user says
// wins, and so does a program that changes what FromEnv returns.
func TestTiming(t *testing.T) {
	const byDay = "Daly's interval for mtbf 24h (default)"
	for _, c := range []struct {
		name, file, interval, mtbf string
		program                    func(*Options)
		want                       string // empty: none by the clock
	}{
		{name: "nothing", want: byDay},
		{name: "variable", interval: "10m", want: "every 10m (HOLDFAST_INTERVAL)"},
		{name: "file", file: "interval: 90s", want: "every 1m30s (interval in holdfast.yaml)"},
		{name: "mtbf wins", interval: "10m", mtbf: "2h", want: "mtbf 2h (HOLDFAST_MTBF)"},
		{name: "off", interval: "off"},
		{name: "zero", interval: "0s"},
		{name: "off wins over the file", file: "mtbf: 12h", interval: "off"},
		{name: "mtbf off", mtbf: "off"},
		{name: "mtbf off beside an interval", mtbf: "off", interval: "5s", want: "every 5s (HOLDFAST_INTERVAL)"},
		{name: "of the program", program: func(o *Options) { o.Interval = time.Hour },
			want: "every 1h (Options.Interval)"},
		{name: "not of FromEnv", program: func(o *Options) { *o = Options{} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			clean(t)
			write(t, config.File, c.file+"\n")
			t.Setenv("HOLDFAST_INTERVAL", c.interval)
			t.Setenv("HOLDFAST_MTBF", c.mtbf)
			o := FromEnv()
			if o.bad != nil {
				t.Fatal(o.bad)
			}
			if c.program != nil {
				c.program(&o)
			}
			if got := o.Timing(); !strings.HasSuffix(got, c.want) || c.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if says := o.whenTaken(); (c.want == "") != strings.HasPrefix(says, "only when asked for; none by the") {
				t.Errorf("got %q", says)
			}
		})
	}
}

// TestDefaultInterval: on virtual time, a program whose settings say nothing takes its first checkpoint after 7 minutes
// and, however cheap that was, no other before 7 more. One that never comes to a point is not asked, and not warned.
func TestDefaultInterval(t *testing.T) {
	for name, points := range map[string]bool{"points": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log testbuf.Buffer
				opt, err := memOptions()
				if err != nil {
					t.Fatal(err)
				}
				opt.fromEnv, opt.Logger = true, slog.New(slog.NewTextHandler(&log, nil))
				opt.plane = connecttest.NewNet(2).Plane
				if err := mpitest.NewWorld(2, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
					return computeFor(world, opt, 20*time.Minute, points, t)
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

// computeFor comes to a Point each second for a time, or to none.
func computeFor(world *mpiwrap.Comm, opt Options, d time.Duration, points bool, t *testing.T) error {
	ck, err := Open(context.Background(), world, opt)
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

func TestStopwatch(t *testing.T) {
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	l := newStopwatch(start)
	l.until(at(3), "a")
	l.until(at(2), "nothing") // before the last call
	l.until(time.Time{}, "never")
	l.until(at(7), "b")
	l.until(at(8), "a") // a second epoch was tried
	if got, want := l.String(), "a 0s, nothing 0s, never 0s, b 0s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for i, want := range []time.Duration{4, 0, 0, 4} {
		if got := l.parts[i].Took; got != want {
			t.Errorf("%s: got %d, want %d", l.parts[i].Name, got, want)
		}
	}
}

// TestRestoreParts: the parts of a restore are all of it.
func TestRestoreParts(t *testing.T) {
	b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
	b.epochs = 1
	for range 2 {
		if err := b.run(); err != nil {
			t.Fatal(err)
		}
	}
	r := b.stats[0].Restore
	if b.restoring[0] == 0 || b.restoring[0] > b.restoring[1] || b.restoring[1] != r.Bytes {
		t.Errorf("read %v bytes of all, want up to %d", b.restoring, r.Bytes)
	}
	var sum time.Duration
	seen := map[string]bool{}
	for _, p := range r.Parts {
		sum += p.Took
		seen[p.Name] = true
	}
	if r.Epoch == 0 || sum > r.Took {
		t.Errorf("got %v in all of %v, epoch %d", sum, r.Took, r.Epoch)
	}
	for _, want := range []string{PartAgree, PartNote, PartOpen, PartMemory, PartVote} {
		if !seen[want] {
			t.Errorf("there is no part %q in %v", want, r.Parts)
		}
	}
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
