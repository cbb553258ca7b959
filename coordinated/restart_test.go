package coordinated

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/fakes3"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	_ "github.com/holdfast-hpc/holdfast/storage/s3"
)

// testOptions are options for simulated ranks in one process: no signals, and a
// lost rank is an error of the test, however slow the machine is.
func testOptions(t *testing.T) Options {
	t.Helper()
	base := t.TempDir()
	o := Options{Job: "test", Local: filepath.Join(base, "local"), Global: filepath.Join(base, "global"),
		CheckpointSignals: []os.Signal{}, StopSignals: []os.Signal{}, Keep: 100, Fanout: 2, PeerTimeout: time.Minute,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		OnLost: func(e *LostError) { t.Errorf("%v", e) }}
	for _, d := range []string{o.Local, o.Global} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// openStep opens a Checkpointer that protects a step and restores it.
func openStep(ctx context.Context, world *mpiwrap.Comm, opt Options) (*Checkpointer, *int, error) {
	ck, err := Open(ctx, world, opt)
	if err != nil {
		return nil, nil, err
	}
	step := new(int)
	if err = ck.Protect("step", step); err == nil {
		_, err = ck.Restore(ctx)
	}
	return ck, step, err
}

// untilTaken comes to Points until a checkpoint is taken: one that is asked for is not, once all ranks are in Close.
func untilTaken(ctx context.Context, ck *Checkpointer) error {
	for !ck.off && len(ck.Stats().Epochs) == 0 {
		if err := ck.Point(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ring is a program whose ranks pass numbers on: deterministic, with a
// reduction now and then. It asks for a checkpoint at step askAt of rank asker.
type ring struct {
	steps        int
	asker, askAt int
	stop         bool
	results      [64]float64 // by rank
	restored     atomic.Int64
	cuts         atomic.Int64
}

func (p *ring) run(opt Options) func(*mpiwrap.Comm) error {
	return func(world *mpiwrap.Comm) error {
		ctx := context.Background()
		ck, err := Open(ctx, world, opt)
		if err != nil {
			return err
		}
		err = p.body(ctx, world, ck)
		if err != nil && !errors.Is(err, ErrStop) {
			ck.Abort(err)
			return err
		}
		for _, es := range ck.Stats().Epochs {
			p.cuts.Add(1)
			if es.Rounds < 1 || es.RequestToCut <= 0 || es.Bytes == 0 {
				err = errors.Join(err, fmt.Errorf("stats of epoch %d say too little: %+v", es.Epoch, es))
			}
		}
		return errors.Join(err, ck.Close())
	}
}

func (p *ring) body(ctx context.Context, world *mpiwrap.Comm, ck *Checkpointer) error {
	n, me := world.Size(), world.Rank()
	step, acc := 0, []float64{float64(me)}
	if err := errors.Join(ck.Protect("step", &step), ck.Protect("acc", &acc)); err != nil {
		return err
	}
	restored, err := ck.Restore(ctx)
	if err != nil {
		return err
	}
	if restored {
		p.restored.Add(1)
	}
	for ; step < p.steps; step++ {
		if me == p.asker && step == p.askAt && !restored {
			ask := ck.Request
			if p.stop {
				ask = ck.RequestStop
			}
			if err := ask(ctx); err != nil {
				return err
			}
		}
		if err := ck.Point(ctx); err != nil {
			return err
		}
		if err := mpiwrap.Send(world, []float64{acc[0] + float64(step)}, (me+1)%n, step%3); err != nil {
			return err
		}
		in := []float64{0}
		if _, err := mpiwrap.Recv(world, in, (me+n-1)%n, step%3); err != nil {
			return err
		}
		acc[0] = 0.5*acc[0] + 0.25*in[0]
		if step%4 == 3 {
			sum := []float64{0}
			if err := mpiwrap.Allreduce(world, sum, acc, mpiwrap.Sum); err != nil {
				return err
			}
			acc[0] += 1e-3 * sum[0]
		}
	}
	p.results[me] = acc[0]
	if me == p.asker && p.askAt < p.steps && !restored {
		return untilTaken(ctx, ck)
	}
	return nil
}

// TestStopAndRestart stops a program at every step in turn, restarts it and
// compares with the uninterrupted run.
func TestStopAndRestart(t *testing.T) {
	const ranks, steps = 3, 12
	want := ring{steps: steps, asker: -1}
	if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 1}).Run(want.run(testOptions(t))); err != nil {
		t.Fatal(err)
	}
	for at := range steps {
		t.Run(fmt.Sprint("step ", at), func(t *testing.T) {
			opt := testOptions(t)
			first := ring{steps: steps, asker: at % ranks, askAt: at, stop: true}
			err := mpitest.NewWorld(ranks, mpitest.Options{Seed: uint64(at), Delay: 0.3}).Run(first.run(opt))
			if err != nil && !errors.Is(err, ErrStop) {
				t.Fatal(err)
			}
			second := ring{steps: steps, asker: -1}
			if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: uint64(at) + 99, Delay: 0.3}).Run(
				second.run(opt)); err != nil {
				t.Fatal(err)
			}
			if second.restored.Load() != ranks {
				t.Fatalf("%d of %d ranks restored", second.restored.Load(), ranks)
			}
			if !slices.Equal(second.results[:ranks], want.results[:ranks]) {
				t.Fatalf("got %v, want %v", second.results[:ranks], want.results[:ranks])
			}
		})
	}
}

// TestMisuse: calls in the wrong order are errors that say so.
func TestMisuse(t *testing.T) {
	opt := testOptions(t)
	var once sync.Once
	err := mpitest.NewWorld(1, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
		ctx := context.Background()
		ck, err := Open(ctx, world, opt)
		if err != nil {
			return err
		}
		defer once.Do(func() { _ = ck.Close() })
		x := 1
		if err := ck.Point(ctx); !errors.Is(err, ErrNotRestored) {
			t.Errorf("Point before Restore: %v", err)
		}
		if err := ck.Protect("x", &x); err != nil {
			t.Error(err)
		}
		var pe *ProtectError
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
		if err := ck.Protect("late", &x); !errors.Is(err, ErrRestored) {
			t.Errorf("Protect after Restore: %v", err)
		}
		if err := ck.Close(); err != nil {
			t.Error(err)
		}
		if err := ck.Point(ctx); !errors.Is(err, ErrClosed) {
			t.Errorf("Point after Close: %v", err)
		}
		if err := ck.Request(ctx); !errors.Is(err, ErrClosed) {
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
	opt := testOptions(t)
	start := func(each func(ctx context.Context, ck *Checkpointer) error) error {
		return mpitest.NewWorld(ranks, mpitest.Options{Seed: 1}).Run(func(world *mpiwrap.Comm) error {
			ctx := context.Background()
			ck, err := Open(ctx, world, opt)
			if err != nil {
				return err
			}
			err = each(ctx, ck)
			ck.CloseOrAbort(&err)
			return err
		})
	}
	restore := func(ck *Checkpointer, ctx context.Context, into any) (bool, error) {
		if err := ck.Protect("step", into); err != nil {
			return false, err
		}
		return ck.Restore(ctx)
	}
	if err := start(func(ctx context.Context, ck *Checkpointer) error {
		step := 7
		if _, err := restore(ck, ctx, &step); err != nil {
			return err
		}
		return errors.Join(ck.RequestStop(ctx), untilTaken(ctx, ck))
	}); err != nil && !errors.Is(err, ErrStop) {
		t.Fatal(err)
	}
	wrong := func(ctx context.Context, ck *Checkpointer) error {
		if err := ck.Request(ctx); err != nil {
			return err
		}
		other := []float64{1, 2, 3}
		if restored, err := restore(ck, ctx, &other); restored || err == nil {
			t.Errorf("restored %v with another type, error %v", restored, err)
		}
		return nil
	}
	never := func(ctx context.Context, ck *Checkpointer) error { return ck.RequestStop(ctx) }
	for _, each := range []func(context.Context, *Checkpointer) error{wrong, never, wrong} {
		if err := start(each); err != nil {
			t.Fatal(err)
		}
	}
	if err := start(func(ctx context.Context, ck *Checkpointer) error {
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
	want := ring{steps: steps, asker: -1}
	if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 1}).Run(want.run(testOptions(t))); err != nil {
		t.Fatal(err)
	}
	for _, compress := range []bool{false, true} {
		store := &fakes3.Server{}
		opt := testOptions(t)
		opt.Global, opt.Compress = fakes3.Start(t, store), compress
		first := ring{steps: steps, asker: 1, askAt: 5, stop: true}
		if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 2}).Run(first.run(opt)); err != nil &&
			!errors.Is(err, ErrStop) {
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
		again := ring{steps: steps, asker: -1}
		if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 3}).Run(again.run(opt)); err != nil {
			t.Fatal(err)
		}
		if again.restored.Load() != ranks {
			t.Errorf("%d ranks restored, want %d", again.restored.Load(), ranks)
		}
		if again.results != want.results {
			t.Errorf("got %v, want %v", again.results[:ranks], want.results[:ranks])
		}
	}
}
