package jobtest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
)

var (
	damagedRestarts = flag.Int("restarts", 30, "restarts that TestDamagedRestarts tries")
	restartSeed     = flag.Uint64("restart-seed", 1, "seed of TestDamagedRestarts")
)

// stairs is a program that takes a checkpoint after each of some steps, one of them
// its last.
type stairs struct {
	steps, every, stop int
	results            [3]float64
	from               [3]int
	restored           atomic.Int64
}

func (p *stairs) run(opt coordinated.Options) error {
	return mpitest.NewWorld(len(p.results), mpitest.Options{Seed: 5}).Run(func(w *mpiwrap.Comm) error {
		ck, err := coordinated.Open(context.Background(), w, opt)
		if err != nil {
			return err
		}
		if err = p.body(w, ck); err != nil && !errors.Is(err, coordinated.ErrStop) {
			ck.Abort(err)
			return err
		}
		return ck.Close()
	})
}

func (p *stairs) body(w *mpiwrap.Comm, ck *coordinated.Checkpointer) error {
	ctx, me := context.Background(), w.Rank()
	step, acc, stays := 0, []float64{float64(me)}, make([]float64, 2000)
	for i := range stays {
		stays[i] = float64(i * i)
	}
	if err := errors.Join(ck.Protect("step", &step), ck.Protect("acc", &acc), ck.Protect("stays", &stays)); err != nil {
		return err
	}
	restored, err := ck.Restore(ctx)
	if err != nil {
		return err
	}
	if restored {
		p.restored.Add(1)
	}
	p.from[me] = step
	for ; step < p.steps; step++ {
		before := len(ck.Stats().Epochs)
		asked := p.every > 0 && step > 0 && step%p.every == 0
		if asked && me == 0 {
			ask := ck.Request
			if step == p.stop {
				ask = ck.RequestStop
			}
			if err := ask(ctx); err != nil {
				return err
			}
		}
		for first := true; first || asked && len(ck.Stats().Epochs) == before; first = false {
			if err := ck.Point(ctx); err != nil {
				return err
			}
		}
		in, out := []float64{0}, []float64{acc[0] + stays[step]}
		if err := mpiwrap.Allreduce(w, in, out, mpiwrap.Sum); err != nil {
			return err
		}
		acc[0] = 0.5*acc[0] + 0.1*in[0]
	}
	p.results[me] = acc[0]
	return nil
}

// restartSite is a job with checkpoints whose last step is yet to come.
type restartSite struct{ base string }

func (s restartSite) dirs() []string {
	return []string{filepath.Join(s.base, "local"), filepath.Join(s.base, "global")}
}

func (s restartSite) options() coordinated.Options {
	return coordinated.Options{Job: "stairs", Local: s.dirs()[0], Global: s.dirs()[1], CheckpointSignals: []os.Signal{},
		StopSignals: []os.Signal{},
		Keep:        2, PeerTimeout: time.Minute, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		OnLost: func(*coordinated.LostError) {}}
}

// worst returns what holdfast verify --complete finds.
func (s restartSite) worst(ctx context.Context) (checkpoints.Kind, error) {
	return worstOf(ctx, s.dirs())
}

// worstOf returns the worst of any directories.
func worstOf(ctx context.Context, dirs []string) (checkpoints.Kind, error) {
	v, err := checkpoints.Inspect(ctx, dirs...)
	if err != nil {
		return checkpoints.Damaged, nil // it could not look, and says so
	}
	v.Complete = true
	found := v.VerifyDirs()
	epochs, err := v.Expected()
	for _, e := range epochs {
		if err == nil {
			var more []checkpoints.Finding
			more, err = v.Verify(ctx, e)
			found = append(found, more...)
		}
	}
	if len(epochs) == 0 {
		return checkpoints.Missing, err
	}
	return storagetest.Worst(found), err
}

// TestDamagedRestarts damages the directories of a job that was stopped and starts
// it again: it ends with the result of a run that nothing disturbed, or says that it
// cannot, and then verify has found damage or loss as well. It never starts over.
func TestDamagedRestarts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away; make test runs as root")
	}
	seed := *restartSeed
	t.Logf("%d restarts, seed %d", *damagedRestarts, seed)
	base, err := os.MkdirTemp("/dev/shm", "holdfast-test-")
	if err != nil {
		base = t.TempDir()
	}
	defer os.RemoveAll(base)
	site := restartSite{filepath.Join(base, "site")}
	for _, d := range site.dirs() {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	want := stairs{steps: 12}
	undisturbed := restartSite{filepath.Join(base, "undisturbed")}
	for _, d := range undisturbed.dirs() {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := want.run(undisturbed.options()); err != nil {
		t.Fatal(err)
	}
	first := stairs{steps: 12, every: 2, stop: 8}
	if err := first.run(site.options()); err != nil {
		t.Fatal(err)
	}
	for _, d := range site.dirs() {
		if list, err := filepath.Glob(filepath.Join(d, "epoch-*")); len(list) < 2 {
			t.Fatalf("%s has the epochs %v, %v: nothing to damage", d, list, err)
		}
	}
	newest, went := newestOf(t, site), 0
	for n := range *damagedRestarts {
		rnd := rand.New(rand.NewPCG(seed, uint64(n)))
		s := restartSite{filepath.Join(base, "copy")}
		if err := os.CopyFS(s.base, os.DirFS(site.base)); err != nil {
			t.Fatal(err)
		}
		tighten(t, s.base)
		v := &storagetest.Damager{Rnd: rnd, Base: s.base, Levels: s.dirs(), Newest: newest}
		for v.Damage(); rnd.IntN(2) == 0; {
			v.Damage()
		}
		what := strings.Join(v.Done, "\n\t")
		worst, err := s.worst(t.Context())
		if err != nil {
			t.Errorf("restart %d: verify: %v\n\t%s", n, err, what)
		}
		again := stairs{steps: 12}
		done := make(chan error, 1)
		go func() { done <- again.run(s.options()) }()
		select {
		case err = <-done:
		case <-time.After(3 * time.Minute):
			t.Fatalf("restart %d waits:\n\t%s", n, what)
		}
		switch {
		case err == nil && !slices.Equal(again.results[:], want.results[:]):
			t.Errorf("restart %d: WRONG RESULT %v, want %v:\n\t%s", n, again.results, want.results, what)
		case err == nil && again.restored.Load() == 0:
			t.Errorf("restart %d started over; verify says %q:\n\t%s", n, worst, what)
		case err != nil && (worst == "" || worst == checkpoints.NotRedundant):
			t.Errorf("restart %d: no restart, and verify says %q:\n\t%s\n%v", n, worst, what, err)
		case err == nil && worst == "" && again.from != [3]int{first.stop, first.stop, first.stop}:
			t.Errorf("restart %d: unnoticed, and it continued from %v:\n\t%s", n, again.from, what)
		case err == nil:
			went++
		}
		if t.Failed() {
			t.Logf("the directories before the damage:\n%s", strings.Join(listing(site.base), "\n"))
			t.FailNow()
		}
		if err := os.RemoveAll(s.base); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d continued to the right result", went, *damagedRestarts)
}

func listing(base string) (out []string) {
	filepath.WalkDir(base, func(p string, _ os.DirEntry, _ error) error {
		out = append(out, strings.TrimPrefix(p, base))
		return nil
	})
	return out
}

// newestOf returns the number of the newest epoch that a job has.
func newestOf(t *testing.T, s restartSite) storage.Epoch {
	t.Helper()
	v, err := checkpoints.Inspect(context.Background(), s.dirs()...)
	if err != nil {
		t.Fatal(err)
	}
	epochs, err := v.Expected()
	if err != nil || len(epochs) < 2 {
		t.Fatalf("epochs %v, %v", epochs, err)
	}
	return epochs[0]
}

// tighten gives a copy the modes of the original.
func tighten(t *testing.T, base string) {
	t.Helper()
	err := filepath.WalkDir(base, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(p, 0o700)
		}
		return os.Chmod(p, 0o600)
	})
	if err != nil {
		t.Fatal(fmt.Errorf("copy: %w", err))
	}
}
