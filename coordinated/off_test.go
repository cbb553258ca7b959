package coordinated

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/testbuf"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestOff: what switches checkpoints off, and what only leaves a level out.
func TestOff(t *testing.T) {
	for _, c := range []struct {
		name, file, local, global string
		off, has                  string // what has checkpoints has this directory
	}{
		{name: "global", global: "off", off: "HOLDFAST_GLOBAL=off"},
		{name: "local", local: "off", off: "HOLDFAST_LOCAL=off"},
		{name: "both", local: "off", global: "off", off: "HOLDFAST_LOCAL=off, HOLDFAST_GLOBAL=off"},
		{name: "file", file: "global: off\n", off: "holdfast.yaml: global: off"},
		{name: "over the file", file: "global: /a\n", global: "off", off: "HOLDFAST_GLOBAL=off"},
		{name: "local only", file: "global: /a\n", local: "/b", global: "off", has: "/b"},
		{name: "global only", file: "global: /a\n", local: "off", has: "/a"},
		{name: "a directory of this name", local: "./off", has: "./off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			clean(t)
			write(t, config.File, c.file)
			t.Setenv("HOLDFAST_LOCAL", c.local)
			t.Setenv("HOLDFAST_GLOBAL", c.global)
			o := FromEnv()
			if got := o.Off(); got != c.off || o.Local+o.Global != c.has {
				t.Errorf("off by %q with %q and %q, want %q with %q", got, o.Local, o.Global, c.off, c.has)
			}
			if err := o.validate(); err != nil {
				t.Error(err)
			}
		})
	}
	o := Options{Global: "off"}
	if got := o.Off(); got != "Global=off" {
		t.Errorf("an option is off by %q", got)
	}
	clean(t)
	o = FromEnv()
	if err := o.validate(); err == nil || !strings.Contains(err.Error(), "HOLDFAST_GLOBAL=off") {
		t.Errorf("without directories: %v", err)
	}
}

// TestWithoutCheckpoints: a program computes the same without checkpoints, is told once that there are none, and goes
// on when it is asked for one.
func TestWithoutCheckpoints(t *testing.T) {
	const ranks, steps = 3, 12
	want := ring{steps: steps, asker: 1, askAt: 4}
	if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 1}).Run(want.run(testOptions(t))); err != nil {
		t.Fatal(err)
	}
	opt := testOptions(t)
	var said testbuf.Buffer
	opt.Local, opt.Global, opt.Logger = "off", "", slog.New(slog.NewTextHandler(&said, nil))
	opt.CheckpointSignals = []os.Signal{syscall.SIGUSR1}
	got := ring{steps: steps, asker: 1, askAt: 4}
	if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
		ck, err := Open(t.Context(), w, opt)
		if err != nil {
			return err
		}
		if err := errors.Join(ck.Point(t.Context()), ck.RequestStop(t.Context())); !errors.Is(err, ErrNotRestored) ||
			!errors.Is(err, ErrOff) {
			t.Errorf("before Restore: %v", err)
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
			return err
		}
		return errors.Join(got.body(t.Context(), w, ck), ck.Wait(t.Context(), "global"), ck.Close(), ck.Close())
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.results[:], want.results[:]) {
		t.Errorf("got %v, with checkpoints %v", got.results, want.results)
	}
	if text := said.String(); strings.Count(text, "\n") != 1 ||
		!strings.Contains(text, "running without checkpoints: Local=off") {
		t.Errorf("the log does not have the one line:\n%s", text)
	}
}

// TestWithoutOnSomeRanks: ranks that do not have the same settings say so on all of them.
func TestWithoutOnSomeRanks(t *testing.T) {
	opt := testOptions(t)
	_ = mpitest.NewWorld(2, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
		o := opt
		if w.Rank() == 1 {
			o.Local, o.Global = "off", ""
		}
		_, err := Open(t.Context(), w, o)
		if err == nil || !strings.Contains(err.Error(), "rank 1: running without checkpoints: Local=off; give all") {
			t.Errorf("rank %d: %v", w.Rank(), err)
		}
		return nil
	})
}
