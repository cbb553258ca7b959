package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	_ "github.com/holdfast-hpc/holdfast/storage/s3"
	"github.com/holdfast-hpc/holdfast/test/fakes3"
)

// TestStopAndRestart stops a program at every step in turn, restarts it and
// compares with the uninterrupted run.
func TestStopAndRestart(t *testing.T) {
	const ranks, steps = 3, 12
	want := ring{Steps: steps, Asker: -1}
	if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 1}).Run(want.Run(jobtest.Options(t))); err != nil {
		t.Fatal(err)
	}
	for at := range steps {
		t.Run(fmt.Sprint("step ", at), func(t *testing.T) {
			opt := jobtest.Options(t)
			first := ring{Steps: steps, Asker: at % ranks, AskAt: at, Stop: true}
			err := mpitest.NewWorld(ranks, mpitest.Options{Seed: uint64(at), Delay: 0.3}).Run(first.Run(opt))
			if err != nil && !errors.Is(err, coordinated.ErrStop) {
				t.Fatal(err)
			}
			second := ring{Steps: steps, Asker: -1}
			if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: uint64(at) + 99, Delay: 0.3}).Run(
				second.Run(opt)); err != nil {
				t.Fatal(err)
			}
			if second.Restored.Load() != ranks {
				t.Fatalf("%d of %d ranks restored", second.Restored.Load(), ranks)
			}
			if !slices.Equal(second.Results[:ranks], want.Results[:ranks]) {
				t.Fatalf("got %v, want %v", second.Results[:ranks], want.Results[:ranks])
			}
		})
	}
}

// TestMisuse: calls in the wrong order are errors that say so.
func TestMisuse(t *testing.T) {
	opt := jobtest.Options(t)
	var once sync.Once
	err := mpitest.NewWorld(1, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
		ctx := context.Background()
		ck, err := coordinated.Open(ctx, world, opt)
		if err != nil {
			return err
		}
		defer once.Do(func() { _ = ck.Close() })
		x := 1
		if err := ck.Point(ctx); !errors.Is(err, coordinated.ErrNotRestored) {
			t.Errorf("Point before Restore: %v", err)
		}
		if err := ck.Protect("x", &x); err != nil {
			t.Error(err)
		}
		var pe *coordinated.ProtectError
		for name, v := range map[string]any{"x": &x, "": &x, "a/b": &x, "s": "text", "m": &map[int]int{}} {
			if err := ck.Protect(name, v); !errors.As(err, &pe) {
				t.Errorf("Protect(%q, %T): got %v, want a *ProtectError", name, v, err)
			}
		}
		if _, err := ck.Restore(ctx); err != nil {
			t.Error(err)
		}
		if _, err := ck.Restore(ctx); err == nil {
			t.Error("a second Restore was accepted")
		}
		if err := ck.Protect("late", &x); !errors.Is(err, coordinated.ErrRestored) {
			t.Errorf("Protect after Restore: %v", err)
		}
		if err := ck.Close(); err != nil {
			t.Error(err)
		}
		if err := ck.Point(ctx); !errors.Is(err, coordinated.ErrClosed) {
			t.Errorf("Point after Close: %v", err)
		}
		if err := ck.Request(ctx); !errors.Is(err, coordinated.ErrClosed) {
			t.Errorf("Request after Close: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCloseWithoutState: a checkpoint that is asked for before a Restore that
// fails, or is never called, is not taken in Close: the state is undefined, and the
// epoch would be the newest.
func TestCloseWithoutState(t *testing.T) {
	const ranks = 2
	opt := jobtest.Options(t)
	start := func(each func(ctx context.Context, ck *coordinated.Checkpointer) error) error {
		return mpitest.NewWorld(ranks, mpitest.Options{Seed: 1}).Run(func(world *mpiwrap.Comm) error {
			ctx := context.Background()
			ck, err := coordinated.Open(ctx, world, opt)
			if err != nil {
				return err
			}
			err = each(ctx, ck)
			ck.CloseOrAbort(&err)
			return err
		})
	}
	restore := func(ck *coordinated.Checkpointer, ctx context.Context, into any) (bool, error) {
		if err := ck.Protect("step", into); err != nil {
			return false, err
		}
		return ck.Restore(ctx)
	}
	if err := start(func(ctx context.Context, ck *coordinated.Checkpointer) error {
		step := 7
		if _, err := restore(ck, ctx, &step); err != nil {
			return err
		}
		return errors.Join(ck.RequestStop(ctx), jobtest.UntilTaken(ctx, ck))
	}); err != nil && !errors.Is(err, coordinated.ErrStop) {
		t.Fatal(err)
	}
	wrong := func(ctx context.Context, ck *coordinated.Checkpointer) error {
		if err := ck.Request(ctx); err != nil {
			return err
		}
		other := []float64{1, 2, 3}
		if restored, err := restore(ck, ctx, &other); restored || err == nil {
			t.Errorf("restored %v with another type, error %v", restored, err)
		}
		return nil
	}
	never := func(ctx context.Context, ck *coordinated.Checkpointer) error { return ck.RequestStop(ctx) }
	for _, each := range []func(context.Context, *coordinated.Checkpointer) error{wrong, never, wrong} {
		if err := start(each); err != nil {
			t.Fatal(err)
		}
	}
	if err := start(func(ctx context.Context, ck *coordinated.Checkpointer) error {
		step := 0
		restored, err := restore(ck, ctx, &step)
		if !restored || step != 7 {
			t.Errorf("restored %v, step %d, want that of the program that had a state, 7", restored, step)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestRestartFromObjectStore takes final checkpoints to an object store, loses everything else, and continues from the
// store alone. The results are those of the uninterrupted run.
func TestRestartFromObjectStore(t *testing.T) {
	const ranks, steps = 3, 12
	want := ring{Steps: steps, Asker: -1}
	if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 1}).Run(want.Run(jobtest.Options(t))); err != nil {
		t.Fatal(err)
	}
	for _, compress := range []bool{false, true} {
		store := &fakes3.Server{}
		opt := jobtest.Options(t)
		opt.Global, opt.Compress = fakes3.Start(t, store), compress
		first := ring{Steps: steps, Asker: 1, AskAt: 5, Stop: true}
		if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 2}).Run(first.Run(opt)); err != nil &&
			!errors.Is(err, coordinated.ErrStop) {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(store.Keys(), func(k string) bool { return strings.HasSuffix(k, "/manifest") }) {
			t.Fatalf("no epoch is committed; there are %v", store.Keys())
		}
		if left, _ := os.ReadDir(opt.Local); len(left) == 0 {
			t.Fatal("nothing was written to the local directory")
		}
		if err := os.RemoveAll(opt.Local); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(opt.Local, 0o755); err != nil {
			t.Fatal(err)
		}
		again := ring{Steps: steps, Asker: -1}
		if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 3}).Run(again.Run(opt)); err != nil {
			t.Fatal(err)
		}
		if again.Restored.Load() != ranks {
			t.Errorf("%d ranks restored, want %d", again.Restored.Load(), ranks)
		}
		if again.Results != want.Results {
			t.Errorf("got %v, want %v", again.Results[:ranks], want.Results[:ranks])
		}
	}
}
