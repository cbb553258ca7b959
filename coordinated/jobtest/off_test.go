package jobtest_test

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// TestWithoutCheckpoints: a program computes the same without checkpoints, logs once that there are none, and goes
// on when it is asked for one.
func TestWithoutCheckpoints(t *testing.T) {
	const ranks, steps = 3, 12
	want := ring{Steps: steps, Asker: 1, AskAt: 4}
	if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 1}).Run(want.Run(jobtest.Options(t))); err != nil {
		t.Fatal(err)
	}
	opt := jobtest.Options(t)
	var said testbuf.Buffer
	opt.Local, opt.Global, opt.Logger = "off", "", slog.New(slog.NewTextHandler(&said, nil))
	opt.CheckpointSignals = []os.Signal{syscall.SIGUSR1}
	got := ring{Steps: steps, Asker: 1, AskAt: 4}
	if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
		ck, err := coordinated.Open(t.Context(), w, opt)
		if err != nil {
			return err
		}
		if err := errors.Join(ck.Point(t.Context()), ck.RequestStop(t.Context())); !errors.Is(err,
			coordinated.ErrNotRestored) ||
			!errors.Is(err, coordinated.ErrOff) {
			t.Errorf("before Restore: %v", err)
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
			return err
		}
		return errors.Join(got.Body(t.Context(), w, ck, opt), ck.Wait(t.Context(), "global"), ck.Close(), ck.Close())
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Results[:], want.Results[:]) {
		t.Errorf("got %v, with checkpoints %v", got.Results, want.Results)
	}
	if text := said.String(); strings.Count(text, "\n") != 1 ||
		!strings.Contains(text, "running without checkpoints: Local=off") {
		t.Errorf("the log does not have the one line:\n%s", text)
	}
}

// TestWithoutOnSomeRanks: ranks that do not have the same settings say so on all of them.
func TestWithoutOnSomeRanks(t *testing.T) {
	opt := jobtest.Options(t)
	_ = mpitest.NewWorld(2, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
		o := opt
		if w.Rank() == 1 {
			o.Local, o.Global = "off", ""
		}
		_, err := coordinated.Open(t.Context(), w, o)
		if err == nil || !strings.Contains(err.Error(), "rank 1: running without checkpoints: Local=off; give all") {
			t.Errorf("rank %d: %v", w.Rank(), err)
		}
		return nil
	})
}
