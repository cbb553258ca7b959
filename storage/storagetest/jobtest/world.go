package jobtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// World is a job of two ranks on a file system that can lose power. Each rank
// has its own local directory; both share the global one.
type World struct {
	FS     *crashfs.FS
	Stores storagetest.Stores
}

// WorldSize is how many ranks a World has.
const WorldSize = 2

// NewWorldFS returns an empty disk for a World.
func NewWorldFS() *crashfs.FS {
	f := crashfs.New()
	f.SetDirect(true)
	f.MkdirAll("/global")
	for r := range WorldSize {
		f.MkdirAll(fmt.Sprintf("/local%d", r))
	}
	return f
}

// OpenWorld opens the stores of a world; change, if there is one, changes how they use each level.
func OpenWorld(f *crashfs.FS, change ...func(l *storage.LevelConfig)) (*World, error) {
	return openWorld(f, 2, change)
}

// OpenLocal is OpenWorld with the local level alone.
func OpenLocal(f *crashfs.FS, change ...func(l *storage.LevelConfig)) (*World, error) {
	return openWorld(f, 1, change)
}

func openWorld(f *crashfs.FS, n int, change []func(l *storage.LevelConfig)) (*World, error) {
	w := &World{FS: f}
	for r := range WorldSize {
		levels := []storage.LevelConfig{
			{Name: storage.LevelLocal, Dir: fmt.Sprintf("/local%d", r), Keep: 1},
			{Name: storage.LevelGlobal, Dir: "/global", Keep: 1, CompressAlways: true},
		}[:n]
		for i := range levels {
			for _, do := range change {
				do(&levels[i])
			}
		}
		s, err := storage.Open(WithPools(vfs.With(context.Background(), f)),
			storage.Options{Job: "crash", Rank: r, Size: WorldSize,
				Levels: levels})
		if err != nil {
			return w, err
		}
		w.Stores = append(w.Stores, s)
	}
	return w, nil
}

// At returns a level of a rank: its local directory at 0, the global one at 1.
func (w *World) At(rank, l int) *level.Dir {
	if l == 0 {
		return level.NewDir(w.FS, storage.LevelLocal, fmt.Sprintf("/local%d", rank), rank)
	}
	return level.NewDir(w.FS, storage.LevelGlobal, "/global", rank)
}

// Stop closes the stores.
func (w *World) Stop() {
	for _, s := range w.Stores {
		s.Close()
	}
}

// SmallSections has a part that changes with every epoch and one that changes
// with every third, so that chunks are referred to.
func SmallSections(rank int, e storage.Epoch) []storage.Section {
	return []storage.Section{
		storagetest.Section("fast", Random(uint64(e)*8+uint64(rank), 3000)),
		storagetest.Section("slow", Random(1000+uint64(e)/3*8+uint64(rank), 5000)),
		storagetest.Section("zero", make([]byte, 700)),
	}
}

// TakeEpoch takes an epoch as a job does. It calls done for each level
// at which the epoch is committed for sure.
func (w *World) TakeEpoch(e storage.Epoch, done func(e storage.Epoch)) error {
	ctx := context.Background()
	infos, err := w.Stores.InTurn(func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return s.Put(ctx, e, storage.LevelLocal, SmallSections(r, e))
	})
	if err == nil {
		err = w.Stores.Commit(e, storage.LevelLocal, infos)
	}
	if err != nil {
		return err
	}
	done(e)
	infos, err = w.Stores.InTurn(func(s *storage.Store, _ int) (storage.ShardInfo, error) {
		return s.Flush(ctx, e, storage.LevelLocal, storage.LevelGlobal, nil)
	})
	if err == nil {
		err = w.Stores.Commit(e, storage.LevelGlobal, infos)
	}
	if err != nil {
		return err
	}
	for _, s := range w.Stores {
		if _, err := s.Prune(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Check restores e on all ranks and compares it.
func (w *World) Check(e storage.Epoch) error {
	_, err := w.Stores.Restore(e, SmallSections)
	return err
}

// WholeEpochs makes sure that whatever has a manifest has its shards, and those
// that it refers to, at that level.
func (w *World) WholeEpochs() error {
	for r := range w.Stores {
		for i := range 2 {
			l := w.At(r, i)
			epochs, err := l.Epochs()
			if err != nil {
				return err
			}
			for _, e := range epochs {
				m, err := l.ReadManifest(e)
				if errors.Is(err, storage.ErrNotCommitted) {
					continue
				}
				if err == nil {
					err = level.Probe(l, m, r)
				}
				if err == nil {
					err = level.CheckOrigins(l, m.Shards[r].Origins)
				}
				if err != nil {
					return fmt.Errorf("rank %d: epoch %d has a manifest at %s: %w", r, e, l.Name(), err)
				}
			}
		}
	}
	return nil
}

// Unflushed returns a dead job with epoch 1 at both levels and epoch 2 at local only.
func Unflushed(t *testing.T) *World {
	t.Helper()
	w := OneEpoch(t)
	infos, err := w.Stores.InTurn(func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return s.Put(context.Background(), 2, storage.LevelLocal, SmallSections(r, 2))
	})
	if err == nil {
		err = w.Stores.Commit(2, storage.LevelLocal, infos)
	}
	if err != nil {
		t.Fatal(err)
	}
	// A flush that ended half-way.
	if _, err := w.Stores[0].Flush(t.Context(), 2, storage.LevelLocal, storage.LevelGlobal, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

// FullWorld has epochs 1 to n at local and global, nothing of which was pruned. Each level keeps two from then on;
// change is as in OpenWorld.
func FullWorld(t *testing.T, n storage.Epoch, change ...func(l *storage.LevelConfig)) *World {
	t.Helper()
	f := NewWorldFS()
	w, err := OpenWorld(f, func(l *storage.LevelConfig) { l.Keep, l.Full = int(n), true })
	if err != nil {
		t.Fatal(err)
	}
	for e := storage.Epoch(1); e <= n; e++ {
		if err := w.TakeEpoch(e, func(storage.Epoch) {}); err != nil {
			t.Fatal(err)
		}
	}
	w.Stop()
	two := func(l *storage.LevelConfig) { l.Keep, l.Full = 2, true }
	if w, err = OpenWorld(f, append(change, two)...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// EpochsAt lists the epochs at a level of a rank.
func (w *World) EpochsAt(t *testing.T, rank, level int) []storage.Epoch {
	t.Helper()
	list, err := w.At(rank, level).Epochs()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Agree exchanges the contents of the directories.
func (w *World) Agree(t *testing.T, level string) {
	t.Helper()
	count := map[storage.Epoch]int{}
	for _, s := range w.Stores {
		have, err := s.Present(t.Context(), level)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range have {
			count[e]++
		}
	}
	maps.DeleteFunc(count, func(_ storage.Epoch, n int) bool { return n < len(w.Stores) })
	all := slices.Sorted(maps.Keys(count))
	for _, s := range w.Stores {
		if err := s.Agree(level, all); err != nil {
			t.Fatal(err)
		}
	}
}

// Prune prunes on all ranks.
func (w *World) Prune(t *testing.T) {
	t.Helper()
	for _, s := range w.Stores {
		if _, err := s.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// OneEpoch has one committed epoch of two ranks at both levels.
func OneEpoch(t *testing.T) *World {
	t.Helper()
	w, err := OpenWorld(NewWorldFS())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	if err := w.TakeEpoch(1, func(storage.Epoch) {}); err != nil {
		t.Fatal(err)
	}
	return w
}

// FileSize returns the length of a file.
func FileSize(t *testing.T, f *crashfs.FS, name string) int64 {
	t.Helper()
	e, err := f.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return e.Size
}

// Findings returns how much verify finds wrong in directories.
func Findings(t *testing.T, f *crashfs.FS, dirs ...string) int {
	t.Helper()
	v, err := checkpoints.Open(vfs.With(context.Background(), f), dirs...)
	if err != nil {
		t.Fatal(err)
	}
	there, err := v.Expected()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(there, 1) {
		return 0
	}
	found, err := v.Verify(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// CrashEverywhere prepares a file system, takes the machine down before each operation of do in turn (in short tests
// every 23rd), and has after look at each outcome once. It returns the number of operations.
func CrashEverywhere(t *testing.T, prepare func() *crashfs.FS, do func(f *crashfs.FS) error,
	after func(f *crashfs.FS, at int)) int {
	t.Helper()
	step := 1
	if testing.Short() {
		step = 23
	}
	for at := 0; ; at += step {
		f := prepare()
		start := f.Ops()
		f.SetRule(func(op crashfs.Op) error {
			if op.N == start+at {
				return crashfs.ErrCrashed
			}
			return nil
		})
		err := do(f)
		if err == nil && f.Ops() <= start+at {
			return at
		}
		if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
			t.Fatalf("op %d: %v", at, err)
		}
		seen := map[[32]byte]bool{}
		for mode := range 3 {
			if g := f.Crash(crashfs.Survival(mode), uint64(at)); !seen[g.Sum()] {
				seen[g.Sum()] = true
				after(g, at)
			}
		}
	}
}
