package persist_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// TestNeverStartsOverByItself: all epochs of a job are gone from some or all of its levels.
// As long as one of them tells that there were some the job does not start over.
func TestNeverStartsOverByItself(t *testing.T) {
	for _, c := range []struct {
		gone       string // what is removed: all of a level's directory, or its epochs only
		startsOver bool
	}{
		{"local global/epochs", false},
		{"local/epochs global", false},
		{"local/epochs global/epochs", false},
		{"local global", true}, // no record is left
	} {
		t.Run(c.gone, func(t *testing.T) {
			b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
			if err := b.run(); err != nil {
				t.Fatal(err)
			}
			for _, what := range strings.Fields(c.gone) {
				dir, epochs := strings.CutSuffix("/"+what, "/epochs")
				if epochs {
					b.fs.RemoveAll(dir + "/epoch-0000000001")
					continue
				}
				b.fs.RemoveAll(dir)
				b.fs.MkdirAll(dir)
			}
			b.opt.OnLost, b.restored = func(*coordinated.LostError) {}, [3]int{}
			err := b.run()
			var lost *coordinated.LostEpochsError
			if got := err == nil; got != c.startsOver || !c.startsOver && !errors.As(err, &lost) {
				t.Fatalf("starts over: %v, %v", got, err)
			}
			if !c.startsOver && !strings.Contains(err.Error(), "committed epoch 1 at level local") {
				t.Errorf("it does not say what there was: %v", err)
			}
			b.opt.Fresh = true
			if err := b.run(); err != nil || b.restored[0] != 0 {
				t.Errorf("told to start over: %v, restored at step %d", err, b.restored[0])
			}
		})
	}
}

// TestFirstCommitCutOff: the job dies while its first epoch is committed, and a shard is
// lost with it. It never had a checkpoint, so it starts over; had it had one before, it
// would not.
func TestFirstCommitCutOff(t *testing.T) {
	for _, before := range []int{0, 1} {
		t.Run(fmt.Sprint("epochs before ", before), func(t *testing.T) {
			b := newBulk(t, storage.LevelLocal)
			if before > 0 {
				if err := b.run(); err != nil {
					t.Fatal(err)
				}
			}
			b.fs.SetRule(func(op crashfs.Op) error { // the death comes before this note
				if op.Kind == "rename" && strings.Contains(op.Name, "holdfast.begun") {
					return syscall.EIO
				}
				return nil
			})
			if err := b.run(); err != nil {
				t.Fatal(err)
			}
			b.fs.SetRule(nil)
			for e := range before + 1 {
				if err := b.fs.Remove(shardOf(e+1, 1)); err != nil {
					t.Fatal(err)
				}
			}
			b.opt.OnLost, b.restored = func(*coordinated.LostError) {}, [3]int{}
			err := b.run()
			var none *coordinated.NoCommonEpochError
			if startsOver := err == nil; startsOver != (before == 0) || !startsOver && !errors.As(err, &none) {
				t.Errorf("starts over: %v, %v", startsOver, err)
			}
		})
	}
}

// TestOldBuildTellsNothing: a directory of a build that did not note what it had is not
// taken for one that had nothing.
func TestOldBuildTellsNothing(t *testing.T) {
	b := newBulk(t, storage.LevelLocal)
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.fs.Remove("/local/holdfast.begun"), b.fs.Remove(shardOf(1, 1))); err != nil {
		t.Fatal(err)
	}
	b.opt.OnLost = func(*coordinated.LostError) {}
	var none *coordinated.NoCommonEpochError
	if err := b.run(); !errors.As(err, &none) {
		t.Errorf("got %v, want a *NoCommonEpochError", err)
	}
}

// TestSkippedEpoch lets the program die twice right after each restore. The log,
// and in the end the error, must say so and how to have the epoch all the same.
func TestSkippedEpoch(t *testing.T) {
	b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
	b.epochs = 2
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	died := errors.New("died of what it restored")
	dieOf := func(e storage.Epoch) {
		t.Helper()
		b.die, b.epochs, b.opt.OnLost = died, 0, func(*coordinated.LostError) {}
		for range vote.MaxDeaths {
			if err := b.run(); !errors.Is(err, died) {
				t.Fatalf("got %v, want it to restore epoch %d and die", err, e)
			}
		}
		b.die = nil
	}
	dieOf(2)
	var log testbuf.Buffer
	b.opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
	dieOf(1)
	for _, want := range []string{"epoch(s) [2] skipped", "at least 2 crashes within a minute of restoring",
		"HOLDFAST_EPOCH=2"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, &log)
		}
	}
	var last testbuf.Buffer
	b.opt.Logger = slog.New(slog.NewTextHandler(&last, nil))
	b.die, b.epochs, b.opt.OnLost = died, 0, func(*coordinated.LostError) {}
	for range 2 * (vote.LastDeaths - vote.MaxDeaths) { // both, as there is no other
		if err := b.run(); !errors.Is(err, died) {
			t.Fatalf("got %v, want it to try once more", err)
		}
	}
	if !strings.Contains(last.String(), "trying once more") {
		t.Errorf("the log does not say that it tries once more:\n%s", &last)
	}
	b.die = nil
	var bad *coordinated.SkippedEpochsError
	err := b.run()
	if !errors.As(err, &bad) || len(bad.Epochs) != 2 || !strings.Contains(err.Error(), "HOLDFAST_FRESH=1") {
		t.Errorf("all epochs are skipped: got %v, want a *SkippedEpochsError that names both", err)
	}
	b.opt.Epoch = 2
	if err := b.run(); err != nil || b.stats[0].Restore.Epoch != 2 {
		t.Errorf("forced: restored %+v, %v", b.stats[0].Restore, err)
	}
	b.opt.Epoch = 0 // that run ended by itself
	if err := b.run(); err != nil || b.stats[0].Restore.Epoch != 2 {
		t.Errorf("after a run that lived: restored %+v, %v", b.stats[0].Restore, err)
	}
}

// TestDirectoryOfAnotherRun: the local directory of rank 1 is that of another run of the
// same name and size, which has an epoch of the same number. The start is refused, and so is a
// salvage with directories of both.
func TestDirectoryOfAnotherRun(t *testing.T) {
	b := newBulk(t, storage.LevelGlobal)
	b.fs.MkdirAll("/other")
	run := func(late int, global string, local func(rank int) string) error {
		b.each = func(rank int, o *coordinated.Options) {
			o.Local, o.Global = local(rank), global
			b.fs.MkdirAll(o.Local)
		}
		b.ask = func([]coordinated.EpochStats) bool { late--; return late < 0 }
		return b.run()
	}
	ours := func(rank int) string { return fmt.Sprint("/local", rank) }
	theirs := func(rank int) string { return fmt.Sprint("/others", rank) }
	if err := errors.Join(run(0, "/global", ours), run(5, "/other", theirs)); err != nil {
		t.Fatal(err)
	}
	err := run(0, "/global", func(rank int) string {
		if rank == 1 {
			return theirs(rank)
		}
		return ours(rank)
	})
	if err == nil || !strings.Contains(err.Error(), "rank 1: level local directory /others1 belongs to the run that") {
		t.Errorf("got %v, want the directory of rank 1 refused", err)
	}

	// The epoch of the other run is committed by more directories, and not there for all ranks.
	b.fs.RemoveAll("/global")
	b.fs.MkdirAll("/global")
	for r := range 3 {
		if r > 0 {
			b.fs.RemoveAll(ours(r))
		}
	}
	ctx := context.Background()
	dirs := []string{ours(0), theirs(1), theirs(2)}
	var refused *storage.RunError
	if e, err := checkpoints.Flush(vfs.With(ctx, b.fs), dirs, "/global", 0); !errors.As(err, &refused) {
		t.Errorf("flush has made an epoch of two: %d, %v", e, err)
	}
}

// TestOtherProgram: a program that protects something else than the checkpoints hold is
// told so, loses nothing, and is not held against the epoch.
func TestOtherProgram(t *testing.T) {
	b := newBulk(t, storage.LevelLocal)
	b.epochs = 2
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	opt := b.opt
	opt.Logger = slog.New(slog.DiscardHandler)
	for range vote.LastDeaths + 1 {
		b.wire(3)
		err := mpitest.NewWorld(3, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
			ck, err := coordinated.Open(b.under(context.Background()), w, opt)
			if err != nil {
				return err
			}
			step, data := int32(-1), []float64{7}
			if err := errors.Join(ck.Protect("step", &step), ck.Protect("data", &data)); err != nil {
				return err
			}
			_, err = ck.Restore(context.Background())
			var failed *coordinated.RestoreError
			var other *coordinated.MismatchError
			if !errors.As(err, &failed) || !failed.Mismatch || !errors.As(err, &other) || other.Name != "step" ||
				!strings.Contains(err.Error(), "start the program that wrote them") ||
				strings.Contains(err.Error(), "verify") || strings.Contains(err.Error(), "FRESH") {
				t.Errorf("got %v, want a *RestoreError that says the program is another", err)
			}
			if step != -1 || len(data) != 1 || data[0] != 7 {
				t.Errorf("the program has %d and %v", step, data)
			}
			return ck.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	b.epochs = 0
	if err := b.run(); err != nil || b.stats[0].Restore.Epoch != 2 {
		t.Errorf("the right program restored %d, %v", b.stats[0].Restore.Epoch, err)
	}
}
