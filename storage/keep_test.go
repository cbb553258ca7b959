package storage

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// impatient lets KeepEpoch not wait.
func impatient(t *testing.T) {
	before := keepSettles
	keepSettles = 0
	t.Cleanup(func() { keepSettles = before })
}

// keepingJob takes epochs, has one kept, and takes that back. It says which epochs must be at global
// for sure, and which are kept.
func keepingJob(f *crashfs.FS) (kept []Epoch, err error) {
	ctx := vfs.With(context.Background(), f)
	w, err := openWorld(f)
	defer w.close()
	take := func(epochs ...Epoch) {
		for _, e := range epochs {
			if err == nil {
				err = w.takeEpoch(e, func(Epoch) {})
			}
		}
	}
	take(1, 2)
	if err != nil {
		return nil, err
	}
	if err = KeepEpoch(ctx, "/global", 2, "good"); err != nil {
		return nil, err
	}
	kept = []Epoch{2}
	take(3, 4)
	if err == nil {
		if err = w.stores[0].KeepByRule(ctx, 4, LevelGlobal, 4, 0); err == nil {
			kept = append(kept, 4)
		}
	}
	take(5)
	if err == nil {
		kept = []Epoch{4}
		err = Unkeep(ctx, "/global", 2)
	}
	take(6)
	return kept, err
}

// TestKeptThroughCrashes takes the machine down at operations of a job that keeps epochs, and
// starts again: what was kept is there, whole, after further epochs and prunes.
func TestKeptThroughCrashes(t *testing.T) {
	impatient(t)
	f := newWorldFS()
	if _, err := keepingJob(f); err != nil {
		t.Fatal(err)
	}
	modes := []crashfs.Survival{crashfs.LoseAll, crashfs.KeepAll, crashfs.Torn}
	for at := range f.Ops() {
		step := 3
		if testing.Short() {
			step = 17
		}
		if at%step != 0 {
			continue
		}
		f := newWorldFS()
		var last crashfs.Op
		f.SetRule(func(op crashfs.Op) error {
			if op.N == at {
				last = op
				return crashfs.ErrCrashed
			}
			return nil
		})
		kept, err := keepingJob(f)
		if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
			t.Fatalf("crash before op %d: got %v, want ErrCrashed", at, err)
		}
		checkCrashed(t, f.Crash(modes[at/step%3], uint64(at)), at, last, 0)
		g := f.Crash(modes[at/step%3], uint64(at))
		w, err := openWorld(g)
		if err != nil {
			t.Fatal(err)
		}
		next := Epoch(100)
		for e := next; e < next+3; e++ {
			if err := w.takeEpoch(e, func(Epoch) {}); err != nil {
				t.Fatalf("op %d: %v", at, err)
			}
		}
		global := w.stores[0].levels[1]
		for _, e := range kept {
			if err := wholeEpoch(global, e); err != nil {
				t.Fatalf("crash before op %d (%s %s): a kept epoch: %v\n%s", at, last.Kind, last.Name, err, g)
			}
		}
		if err := w.wholeEpochs(); err != nil {
			t.Fatalf("op %d: %v", at, err)
		}
		w.close()
	}
}

// TestKeepSparesOrigins: PruneDirs and Prune leave what is kept and what that refers to, and take
// both when it is kept no longer; a damaged record keeps its epoch, too.
func TestKeepSparesOrigins(t *testing.T) {
	impatient(t)
	w := fullWorld(t, 4) // epochs 3 and 4 share chunks
	ctx := vfs.With(t.Context(), w.fs)
	global := w.stores[0].levels[1]
	have := func() []Epoch {
		t.Helper()
		list, err := global.Epochs()
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(list)
		return list
	}
	before := have()
	oldest := before[0]
	if err := KeepEpoch(ctx, "/global", oldest, "first"); err != nil {
		t.Fatal(err)
	}
	if err := KeepEpoch(ctx, "/global", 77, ""); !errors.Is(err, ErrNotCommitted) {
		t.Errorf("no such epoch: got %v", err)
	}
	if err := KeepEpoch(ctx, "/local0", oldest, ""); err == nil || !strings.Contains(err.Error(), "global only") {
		t.Errorf("a local directory: got %v", err)
	}
	w.close()
	if _, err := PruneDirs(ctx, []string{"/global"}, PruneRules{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	if got := have(); got[0] != oldest || wholeEpoch(global, oldest) != nil {
		t.Errorf("after prune: %v, want %d among them", got, oldest)
	}
	name := "/global/" + format.KeptName(oldest)
	if err := w.fs.Flip(name, 30, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := PruneDirs(ctx, []string{"/global"}, PruneRules{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	if got := have(); got[0] != oldest {
		t.Errorf("with a damaged record: %v", got)
	}
	list, err := KeptEpochs(ctx, "/global")
	if !errors.Is(err, ErrCorrupt) || len(list) != 1 || list[0].Epoch != oldest {
		t.Errorf("got %v, %v, want the epoch and what is wrong with its record", list, err)
	}
	if err := Unkeep(ctx, "/global", oldest); err != nil {
		t.Fatal(err)
	}
	if err := Unkeep(ctx, "/global", oldest); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("again: got %v", err)
	}
	if _, err := PruneDirs(ctx, []string{"/global"}, PruneRules{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	if got := have(); slices.Contains(got, oldest) && len(got) == len(before) {
		t.Errorf("kept no longer: still %v", got)
	}
}

// TestKeepWhilePruning: a record that appears after prune has decided stops it, so that an epoch
// that the kept one refers to does not go.
func TestKeepWhilePruning(t *testing.T) {
	impatient(t)
	w := fullWorld(t, 6)
	defer w.close()
	global := w.stores[0].levels[1]
	kept, err := level.KeptAt(global)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := level.Unchanged(global, kept); err != nil || !same {
		t.Errorf("nothing changed: got %v, %v", same, err)
	}
	if err := global.WriteKept(&Kept{Epoch: 6, Name: "x"}); err != nil {
		t.Fatal(err)
	}
	if same, err := level.Unchanged(global, kept); err != nil || same {
		t.Errorf("a record was added: got %v, %v", same, err)
	}
}

// TestKeepByRule: of the epochs that come to the level, each at least so far from the last kept.
func TestKeepByRule(t *testing.T) {
	w, err := openWorld(newWorldFS())
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	s := w.stores[0]
	for _, e := range []Epoch{1, 4, 5, 6, 11, 12, 15, 16} {
		if err := s.KeepByRule(t.Context(), e, LevelGlobal, 5, 0); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := s.levels[1].ReadKept()
	if err != nil || len(kept) != 3 || !kept[5].Auto || !kept[11].Auto || !kept[16].Auto {
		t.Errorf("got %v, %v, want 5, 11 and 16", kept, err)
	}
	if err := s.KeepByRule(t.Context(), 17, LevelGlobal, 0, time.Hour); err != nil {
		t.Fatal(err)
	}
	if kept, err = s.levels[1].ReadKept(); err != nil || len(kept) != 3 {
		t.Errorf("within the hour: got %v, %v", kept, err)
	}
	if err := s.KeepByRule(t.Context(), 18, LevelGlobal, 0, time.Nanosecond); err != nil {
		t.Fatal(err)
	}
	if kept, err = s.levels[1].ReadKept(); err != nil || len(kept) != 4 {
		t.Errorf("after it: got %v, %v", kept, err)
	}
}
