package campaigns

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// TestDecide: which run directories belong to, from what each says.
func TestDecide(t *testing.T) {
	x := storage.Identity{ID: [16]byte{1}, Began: 1}
	y := storage.Identity{ID: [16]byte{2}, Began: 2, Before: x.ID} // has started over in the directories of x
	z := storage.Identity{ID: [16]byte{3}, Began: 3}
	holds := func(run storage.Identity, e storage.Epoch) storage.Owner {
		return storage.Owner{Run: run, HasEpochs: true, Restorable: true, Newest: e}
	}
	idle := func(run storage.Identity) storage.Owner { return storage.Owner{Run: run} }
	none, older := storage.Owner{New: true}, holds(storage.Identity{}, 4)
	for name, c := range map[string]struct {
		seen     []storage.Owner
		want     storage.Owner
		conflict bool
	}{
		"nothing":                        {[]storage.Owner{none, none}, storage.Owner{}, false},
		"a first start without an epoch": {[]storage.Owner{none, idle(x), none}, idle(x), false},
		"one run": {[]storage.Owner{none, holds(x, 3), holds(x, 5), idle(z)},
			holds(x, 5), false},
		"two runs":                            {[]storage.Owner{holds(z, 2), holds(x, 5)}, holds(z, 2), true},
		"an older release":                    {[]storage.Owner{none, older}, older, false},
		"an older release beside a run":       {[]storage.Owner{older, holds(x, 3)}, holds(x, 3), true},
		"an older release, a start before it": {[]storage.Owner{idle(x), older}, older, false},
		"started over, died while it began":   {[]storage.Owner{idle(y), holds(x, 5)}, holds(y, 0), false},
		"started over, a node was away":       {[]storage.Owner{holds(x, 5), holds(y, 6)}, holds(y, 6), false},
		"started over, the other way round":   {[]storage.Owner{holds(y, 6), holds(x, 5)}, holds(y, 6), false},
		"started over, and yet another run": {[]storage.Owner{holds(x, 5), holds(z, 1), idle(y)},
			holds(z, 1), true},
		"a run without epochs beside one with": {[]storage.Owner{idle(z), holds(x, 1)}, holds(x, 1), false},
	} {
		got := storage.Decide(c.seen)
		if got.Run != c.want.Run || got.HasEpochs != c.want.HasEpochs ||
			got.Run == c.want.Run && got.Newest != c.want.Newest {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
		back := storage.DecodeOwner(got.Encode())
		if back != got {
			t.Errorf("%s: %+v came to other ranks as %+v", name, got, back)
		}
		// Ranks decide of their own, then together. It does not matter which of several runs is refused.
		for cut := range c.seen {
			if c.conflict {
				break
			}
			one, two := storage.Decide(c.seen[:cut]), storage.Decide(c.seen[cut:])
			if parts := storage.Decide([]storage.Owner{one, two}); parts.Run != got.Run ||
				parts.HasEpochs != got.HasEpochs {
				t.Errorf("%s: cut at %d got %+v, and %+v at once", name, cut, parts, got)
			}
		}
	}
	if b := storage.Begin([16]byte{9}, 7, older, false); !b.Adopted || !b.Owns(storage.Identity{}) {
		t.Errorf("the epochs of an older release are not adopted: %+v", b)
	}
	if b := storage.Begin([16]byte{9}, 7, holds(x, 1), true); !b.Replaced(x) || b.Adopted {
		t.Errorf("a run that starts over does not say what it replaced: %+v", b)
	}
	at := holds(x, 5)
	for run, want := range map[storage.Identity]bool{x: true, y: true, z: false} {
		if err := at.Fits(run, false, ""); (err == nil) != want {
			t.Errorf("a directory of %v in %v: got %v", x, run, err)
		}
	}
	if err := at.Fits(z, true, ""); err != nil {
		t.Errorf("told to start over: %v", err)
	}
}

// goldenDir has what an older release wrote, on goldenNodes.
const goldenDir = "../../internal/format/testdata/v1"

var goldenNodes = jobtest.NodeNames(3)

// goldenOf copies the directories that an older release wrote and opens them for a run.
func goldenOf(t *testing.T, dir string, run storage.Identity, over bool) (*storage.Store, error) {
	t.Helper()
	net := storagetest.NewLoopback(1)
	s, err := storage.Open(jobtest.WithPools(t.Context()), storage.Options{Job: "golden", Rank: 0,
		Size: len(goldenNodes),
		Node: goldenNodes[0], Nodes: goldenNodes, Transport: net.Rank(0), Identity: run, StartOver: over,
		Levels: []storage.LevelConfig{
			{Name: storage.LevelLocal, Dir: filepath.Join(dir, goldenNodes[0], "local")},
			{Name: storage.LevelGlobal, Dir: filepath.Join(dir, "global")},
		}})
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}

// TestOlderReleaseIsAdopted: a run of this release continues directories that say nothing of a run, and no other run
// takes them.
func TestOlderReleaseIsAdopted(t *testing.T) {
	newer := func(t *testing.T) string {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(goldenDir)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	adopting := storage.Identity{ID: [16]byte{1}, Began: 1, Adopted: true}
	other := storage.Identity{ID: [16]byte{2}, Began: 2}
	for name, c := range map[string]struct {
		run    storage.Identity
		over   bool
		epochs int // that can be restored
		refuse bool
	}{
		"adopting": {adopting, false, 2, false}, "another run": {other, false, 0, true},
		"started over": {other, true, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newer(t)
			s, err := goldenOf(t, dir, c.run, c.over)
			var refused *storage.RunError
			if c.refuse != errors.As(err, &refused) {
				t.Fatalf("got %v", err)
			}
			if c.refuse {
				return
			}
			list, _, err := s.Candidates(t.Context())
			if err != nil || len(list) != c.epochs {
				t.Errorf("can restore %+v, %v, want %d epochs", list, err, c.epochs)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			v, err := checkpoints.Open(t.Context(), filepath.Join(dir, "global"),
				filepath.Join(dir, goldenNodes[0], "local"))
			if err != nil {
				t.Fatal(err)
			}
			found, err := v.Epochs(t.Context())
			if err != nil || len(found) != 4 ||
				slices.ContainsFunc(found, func(e checkpoints.EpochInfo) bool {
					return e.OtherRun != (c.epochs == 0)
				}) {
				t.Errorf("the tools see %+v, %v", found, err)
			}
		})
	}
}
