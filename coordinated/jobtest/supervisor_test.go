package jobtest_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// endless runs a program until a final checkpoint stops it.
func endless(opt coordinated.Options) func(*mpiwrap.Comm) error {
	return func(world *mpiwrap.Comm) error {
		ctx := context.Background()
		ck, step, err := jobtest.OpenStep(ctx, world, opt)
		if err != nil {
			return err
		}
		for err == nil {
			*step++
			if err = world.Barrier(); err == nil {
				err = ck.Point(ctx)
			}
		}
		if !errors.Is(err, coordinated.ErrStop) {
			ck.Abort(err)
			return err
		}
		return ck.Close()
	}
}

// follow reads a job's reports to their end and asks for a checkpoint, then for
// a final one with the given time left.
func follow(s *job.Supervisor, within time.Duration) (first, last job.Report, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, err := s.Accept(ctx)
	if err != nil {
		return first, last, err
	}
	defer w.Close()
	if first, err = w.Next(time.Minute); err != nil {
		return first, last, err
	}
	asked, stopped := false, false
	for r := first; ; {
		if r.Points > 0 && !asked {
			asked, err = true, w.Request(false, 0)
		}
		if r.Committed[storage.LevelGlobal] > 0 && !stopped {
			stopped, err = true, w.Request(true, within)
		}
		if err != nil {
			return first, last, err
		}
		next, err := w.Next(time.Minute)
		if err != nil {
			return first, r, nil
		}
		r = next
	}
}

// supervised returns a supervisor and the options of a job that it has started.
func supervised(t *testing.T) (*job.Supervisor, coordinated.Options) {
	t.Helper()
	s, err := job.Supervise("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // it serves no more
	opt := jobtest.Options(t)
	opt.Supervisor = s.Var(false, false)[len(coordinated.SupervisorVar)+1:]
	return s, opt
}

// TestSupervised: a job that is started by a supervisor reports to it, and does
// what it asks.
func TestSupervised(t *testing.T) {
	s, opt := supervised(t)
	for run := range 2 {
		var first, last job.Report
		done := make(chan error, 1)
		go func() {
			var err error
			first, last, err = follow(s, time.Hour)
			done <- err
		}()
		if err := errors.Join(mpitest.NewWorld(3, mpitest.Options{Seed: 3}).Run(endless(opt)), <-done); err != nil {
			t.Fatal(err)
		}
		if len(first.Nodes) != 3 || first.Job != "test" {
			t.Errorf("run %d: first report %+v", run, first)
		}
		want := uint64(2 * (run + 1))
		if !last.Ended || last.Lost != nil || last.Stopped != want || last.Committed[storage.LevelGlobal] != want {
			t.Errorf("run %d: last report %+v, want the final epoch %d at global", run, last, want)
		}
		if (last.Restored != nil) != (run == 1) || run == 1 && last.Restored.Epoch != 2 {
			t.Errorf("run %d: restored %+v", run, last.Restored)
		}
	}
	opt = jobtest.Options(t)
	opt.Supervisor = "nonsense" // the job runs all the same
	p := ring{Steps: 3, Asker: -1}
	if err := mpitest.NewWorld(1, mpitest.Options{}).Run(p.Run(opt)); err != nil {
		t.Error(err)
	}
}

// inside returns a context under which a Checkpointer shows its parts.
func inside(ctx context.Context, parts *connect.Inside) context.Context {
	return connect.WithSeam(ctx, connect.Seam{Opened: func(p connect.Inside) { *parts = p }})
}

// TestGrace: a final checkpoint is copied to global only if there is time.
func TestGrace(t *testing.T) {
	for _, c := range []struct {
		name   string
		grace  time.Duration
		global bool
	}{{"unknown", 0, true}, {"long", time.Hour, true}, {"none left", time.Nanosecond, false}} {
		t.Run(c.name, func(t *testing.T) {
			opt := jobtest.Options(t)
			opt.Grace = c.grace
			stats := make(chan coordinated.Stats, 1)
			err := mpitest.NewWorld(3, mpitest.Options{Seed: 5}).Run(func(world *mpiwrap.Comm) error {
				var parts connect.Inside
				ck, err := coordinated.Open(inside(t.Context(), &parts), world, opt)
				if err != nil {
					return err
				}
				if _, err := ck.Restore(t.Context()); err != nil {
					return err
				}
				if world.Rank() == 2 {
					parts.KillIn(opt.Grace) // as its signal does
					if err := ck.RequestStop(t.Context()); err != nil {
						return err
					}
				}
				for err == nil {
					if err = world.Barrier(); err == nil {
						err = ck.Point(t.Context())
					}
				}
				if !errors.Is(err, coordinated.ErrStop) {
					ck.Abort(err)
					return err
				}
				for _, ask := range []func(context.Context) error{ck.Request, ck.RequestStop} {
					if err := ask(t.Context()); !errors.Is(err, coordinated.ErrStop) {
						t.Errorf("asking for a checkpoint after the final one: got %v, want ErrStop", err)
					}
				}
				if err := ck.Close(); err != nil {
					return err
				}
				if world.Rank() == 0 {
					stats <- ck.Stats()
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			epochs := (<-stats).Epochs
			if len(epochs) != 1 {
				t.Errorf("epochs after the final one: %+v", epochs[1:])
			}
			es := epochs[0]
			_, local := es.Durable[storage.LevelLocal]
			_, global := es.Durable[storage.LevelGlobal]
			if !es.Stopped || !local || global != c.global {
				t.Errorf("final epoch %+v, want it at local, and at global: %t", es, c.global)
			}
			var late *coordinated.GraceError
			if errors.As(es.Err, &late) == c.global {
				t.Errorf("got error %v", es.Err)
			}
		})
	}
}

// TestUnflushed: a run that does not find the final epoch of the one before, because
// it stayed on other nodes, names these nodes.
func TestUnflushed(t *testing.T) {
	opt := jobtest.Options(t)
	home, elsewhere := opt.Local, t.TempDir()
	node, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	newer := "level=WARN msg=\"holdfast: the final epoch of the previous run is not at global and was not restored"
	for _, c := range []struct {
		name, local string
		stop        bool // take an epoch, then a final one that has no time to come to global
		from        storage.Epoch
		says        string
	}{
		{"first", home, true, 0, ""},
		{"other nodes", elsewhere, false, 1, "epoch=2 nodes=" + node + " restored=1"},
		{"again", elsewhere, false, 1, "epoch=2 nodes=" + node + " restored=1"},
		{"the nodes before", home, false, 2, ""}, // copies it to global
		{"other nodes after all", t.TempDir(), false, 2, ""},
	} {
		var log testbuf.Buffer
		opt.Local, opt.Logger = c.local, slog.New(slog.NewTextHandler(&log, nil))
		err := mpitest.NewWorld(2, mpitest.Options{Seed: 5}).Run(func(world *mpiwrap.Comm) error {
			var parts connect.Inside
			ck, _, err := jobtest.OpenStep(inside(t.Context(), &parts), world, opt)
			if err != nil {
				return err
			}
			if got := ck.Stats().Restore.Epoch; got != c.from {
				t.Errorf("%s: restored epoch %d, want %d", c.name, got, c.from)
			}
			if c.stop {
				if world.Rank() == 0 {
					err = ck.Request(t.Context())
				}
				for err == nil && len(ck.Stats().Epochs) == 0 {
					err = ck.Point(t.Context())
				}
				if err == nil {
					err = ck.Wait(t.Context(), storage.LevelGlobal)
				}
				if err == nil && world.Rank() == 0 {
					parts.KillIn(time.Nanosecond)
					err = ck.RequestStop(t.Context())
				}
				for err == nil {
					err = ck.Point(t.Context())
				}
				if !errors.Is(err, coordinated.ErrStop) {
					ck.Abort(err)
					return err
				}
			}
			return ck.Close()
		})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := log.String(); strings.Contains(got, newer) != (c.says != "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: want it to say %q:\n%s", c.name, c.says, got)
		}
	}
	if _, err := os.Stat(filepath.Join(opt.Global, "holdfast.stayed")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the note is still there: %v", err)
	}
}

// TestKillTime: what the supervisor says about the time after a TERM counts at all
// ranks, not what they took it to leave.
func TestKillTime(t *testing.T) {
	for _, c := range []struct {
		name   string
		within time.Duration
		global bool
	}{{"preempted", 10 * time.Hour, true}, {"nothing better", 0, false}} {
		t.Run(c.name, func(t *testing.T) {
			s, opt := supervised(t)
			opt.Grace = time.Minute
			opt.StopSignals = []os.Signal{syscall.SIGTERM}
			last := make(chan job.Report, 1)
			go func() {
				defer close(last)
				w, err := s.Accept(t.Context())
				if err != nil {
					return
				}
				defer w.Close()
				told := false
				for rep := (job.Report{}); err == nil; rep, err = w.Next(time.Minute) {
					if rep.Terminated && !told {
						if told = true; w.Tell(c.within) != nil {
							return
						}
					}
					if rep.Ended {
						last <- rep
					}
				}
			}()
			var signal sync.Once
			err := mpitest.NewWorld(3, mpitest.Options{Seed: 5}).Run(func(world *mpiwrap.Comm) error {
				var parts connect.Inside
				ctx := connect.WithSeam(t.Context(), connect.Seam{Opened: func(p connect.Inside) { parts = p },
					CopyTime: func(int, time.Duration) time.Duration { return time.Hour }})
				ck, step, err := jobtest.OpenStep(ctx, world, opt)
				if err != nil {
					return err
				}
				for err == nil {
					if err = world.Barrier(); err == nil && world.Rank() == 0 {
						signal.Do(func() {
							_ = parts.OnAgent(t.Context(), func() {
								parts.Signalled(syscall.SIGTERM)
							})
						})
					} else if err == nil && *step == 0 {
						parts.KillIn(opt.Grace)
					}
					*step++
					if err == nil {
						err = ck.Point(t.Context())
					}
				}
				if !errors.Is(err, coordinated.ErrStop) {
					ck.Abort(err)
					return err
				}
				return ck.Close()
			})
			if err != nil {
				t.Fatal(err)
			}
			rep, ok := <-last
			if !ok || rep.Stopped != 1 || (rep.Committed[storage.LevelGlobal] == 1) != c.global {
				t.Errorf("last report %+v, want the final epoch at global: %t", rep, c.global)
			}
		})
	}
}

// TestRequeueStopped: after a final checkpoint, and only then, the job is put back
// into the queue, once, unless somebody else sees to it. Slurm's signals to the step may end a command.
func TestRequeueStopped(t *testing.T) {
	bin, calls := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	script := `#!/bin/sh
ended() {
	if [ -n "$KILLED" ] && ! [ -e "$KILLED.$1" ]; then
		: > "$KILLED.$1"
		kill -TERM $$
	fi
}
[ -n "$LATE" ] || ended "$1"
if [ "$1" = show ]; then
	echo "JobState=$STATE Restarts=$(cat ` + calls + ` 2>/dev/null | wc -l) StartTime=2026-11-23T17:36:54"
	echo "EndTime=2026-11-23T17:37:54 TimeLimit=00:01:00"
else
	echo "$@" >> ` + calls + `
fi
ended "$1"`
	if err := os.WriteFile(filepath.Join(bin, "scontrol"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for _, c := range []struct {
		name, state string
		stop, watch bool
		killed      string // when a signal ends each command once: "", before or after it has asked
		want        string
	}{
		{"time limit", "COMPLETING", true, false, "", "requeue 12\n"},
		{"a signal ends each command once", "COMPLETING", true, false, "before", "requeue 12\n"},
		{"a signal ends each command once it has asked", "COMPLETING", true, false, "after", "requeue 12\n"},
		{"cancelled", "CANCELLED", true, false, "", ""},
		{"not stopped", "RUNNING", false, false, "", ""},
		{"under holdfast run", "RUNNING", true, true, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("STATE", c.state)
			if c.killed != "" {
				t.Setenv("KILLED", filepath.Join(t.TempDir(), "killed"))
			}
			if c.killed == "after" {
				t.Setenv("LATE", "1")
			}
			var log testbuf.Buffer
			opt := jobtest.Options(t)
			opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
			opt.Requeue = true
			if c.watch {
				opt.Supervisor = "nobody"
			}
			err := mpitest.NewWorld(3, mpitest.Options{Seed: 5}).Run(func(world *mpiwrap.Comm) error {
				ctx := connect.WithSeam(t.Context(), connect.Seam{Slurm: &slurm.Job{ID: "12"}})
				ck, _, err := jobtest.OpenStep(ctx, world, opt)
				if err != nil {
					return err
				}
				ask := ck.Request
				if c.stop {
					ask = ck.RequestStop
				}
				if world.Rank() == 1 {
					err = ask(t.Context())
				}
				for err == nil && ck.Stats().Epochs == nil {
					if err = world.Barrier(); err == nil {
						err = ck.Point(t.Context())
					}
				}
				if err != nil && !errors.Is(err, coordinated.ErrStop) {
					ck.Abort(err)
					return err
				}
				return ck.Close()
			})
			if err != nil {
				t.Fatal(err)
			}
			got, _ := os.ReadFile(calls) // none is nothing
			if string(got) != c.want {
				t.Errorf("got the commands %q, want %q", got, c.want)
			}
			if said := strings.Contains(log.String(), "the job is requeued"); said != (c.want != "") {
				t.Errorf("want a requeue announced: %t; the log:\n%s", c.want != "", log.String())
			}
			_ = os.Remove(calls)
		})
	}
}
