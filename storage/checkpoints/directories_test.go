package checkpoints_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// twelveOf has a rank's share of 12 numbers that are divided evenly.
func twelveOf(rank, size int, e storage.Epoch) []storage.Section {
	part := layout.Part{Spans: [][]layout.Span{layout.Even(12, int64(size), int64(rank))}}
	l := storage.Layout{Quiet: true, Arrays: []layout.Local{{Array: layout.Array{Name: "u", Type: "uint8", Elem: 1,
		Dims: []int64{12}, Kind: layout.Divided, Section: "array/u"}, Parts: []layout.Part{part}}}}
	b, err := l.Encode()
	if err != nil {
		panic(err)
	}
	u := make(storage.Bytes, part.Elems())
	for i := range u {
		u[i] = byte(e)*16 + byte(part.Spans[0][0].Start) + byte(i)
	}
	return []storage.Section{{Name: "array/u", Size: int64(len(u)), Source: u},
		{Name: storage.LayoutSection, Size: int64(len(b)), Source: storage.Bytes(b)}}
}

// takeOf has an epoch committed at levels by a number of ranks, each on a node of its own.
func takeOf(t *testing.T, dir string, size int, e storage.Epoch, levels ...string) {
	t.Helper()
	var stores []*storage.Store
	for r := range size {
		opt := storage.Options{Job: "job", Rank: r, Size: size, Elastic: true, Node: fmt.Sprint("n", r)}
		for _, l := range []string{storage.LevelLocal, storage.LevelGlobal} {
			at := l
			if l == storage.LevelLocal {
				at = fmt.Sprint("n", r)
			}
			opt.Levels = append(opt.Levels, storage.LevelConfig{Name: l, Dir: filepath.Join(dir, at), Create: true})
		}
		s, err := storage.Open(t.Context(), opt)
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	for _, l := range levels {
		var infos []storage.ShardInfo
		for r, s := range stores {
			info, err := s.Put(t.Context(), e, l, twelveOf(r, size, e))
			if err != nil {
				t.Fatal(err)
			}
			infos = append(infos, info)
		}
		for r, s := range stores {
			if l == storage.LevelGlobal && r > 0 {
				continue
			}
			if err := s.Commit(t.Context(), e, l, infos); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, s := range stores {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestToolsAfterAResize: a job had three ranks and two later. Its directories say different numbers, that of a node
// that is gone among them, and the tools work on all of them together.
func TestToolsAfterAResize(t *testing.T) {
	dir := t.TempDir()
	takeOf(t, dir, 3, 1, storage.LevelLocal, storage.LevelGlobal)
	takeOf(t, dir, 2, 2, storage.LevelLocal)
	var nodes []string
	for r := range 3 {
		nodes = append(nodes, filepath.Join(dir, fmt.Sprint("n", r)))
	}
	global := filepath.Join(dir, "global")
	all := append([]string{global}, nodes...)
	v, err := checkpoints.Open(t.Context(), all...)
	if err != nil {
		t.Fatal(err)
	}
	list, err := v.Epochs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if c := e.Counts(); e.Size != 4-int(e.Epoch) || !c.Any() {
			t.Errorf("epoch %d in %s: %d ranks, %+v", e.Epoch, e.Dir.Dir, e.Size, c)
		}
	}
	if e, err := checkpoints.Flush(t.Context(), nodes, global, 0); e != 2 || err != nil {
		t.Fatalf("flushed epoch %d, %v; want 2", e, err)
	}
	v, err = checkpoints.Inspect(t.Context(), all...)
	if err != nil {
		t.Fatal(err)
	}
	v.Complete = true
	if n := v.Dirs()[0].Size; n != 2 {
		t.Errorf("global is of %d ranks, want 2", n)
	}
	for e := storage.Epoch(1); e <= 2; e++ {
		if found, err := v.Verify(t.Context(), e); len(found) > 0 || err != nil {
			t.Errorf("epoch %d: %v, %v", e, found, err)
		}
	}
	takeOf(t, dir, 3, 3, storage.LevelLocal)
	for r := range 3 { // each node brings its own
		want := storage.Epoch(0)
		if r == 2 {
			want = 3
		}
		if e, err := checkpoints.Salvage(t.Context(), "end", nodes[r:r+1], global, 0); e != want || err != nil {
			t.Fatalf("node %d: salvaged epoch %d, %v; want %d", r, e, err, want)
		}
	}
	takeOf(t, dir, 2, 4, storage.LevelLocal)
	to := filepath.Join(dir, "copy")
	for e := storage.Epoch(3); e <= 4; e++ {
		if _, err := checkpoints.Copy(t.Context(), all, to, e, 0); err != nil {
			t.Errorf("epoch %d: %v", e, err)
		}
	}
	// Without layouts the numbers have to be the same.
	plain := t.TempDir()
	for size := 1; size <= 2; size++ {
		s, err := storage.Open(t.Context(), storage.Options{Job: "job", Size: size, Levels: []storage.LevelConfig{
			{Name: storage.LevelLocal, Dir: filepath.Join(plain, fmt.Sprint(size)), Create: true}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var other *storage.SizeError
	if _, err := checkpoints.Open(t.Context(), plain+"/1", plain+"/2"); !errors.As(err, &other) {
		t.Errorf("got %v, want a *SizeError", err)
	}
}

// TestToolsRefuseOtherRuns: repair with the directories of two runs of a program takes nothing of the one into the
// other, and says which is which.
func TestToolsRefuseOtherRuns(t *testing.T) {
	base := t.TempDir()
	dirs := []string{filepath.Join(base, "a"), filepath.Join(base, "b")}
	for i, dir := range dirs {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		s, err := storage.Open(t.Context(), storage.Options{Job: "sweep", Size: 1, Levels: []storage.LevelConfig{
			{Name: storage.LevelGlobal, Dir: dir, Keep: 5}},
			Identity: storage.Identity{ID: [16]byte{byte(i + 1)}, Began: int64(i+1) * 1e18}})
		if err != nil {
			t.Fatal(err)
		}
		for e := storage.Epoch(1); e <= storage.Epoch(2+3*i); e++ {
			info, err := s.Put(t.Context(), e, storage.LevelGlobal, []storage.Section{{Name: "x", Size: 1,
				Source: storage.Bytes{byte(i)}}})
			if err == nil {
				err = s.Commit(t.Context(), e, storage.LevelGlobal, []storage.ShardInfo{info})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var refused *storage.RunError
	check := func(tool string, err error) {
		t.Helper()
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "the run that began 2001-09-09") ||
			!strings.Contains(err.Error(), "the run that began 2033-05-18") {
			t.Errorf("%s: got %v, want a *RunError with both runs", tool, err)
		}
	}
	_, err := checkpoints.Repair(t.Context(), dirs, checkpoints.RepairRules{})
	check("repair", err)
	_, err = checkpoints.Inspect(t.Context(), dirs...)
	check("verify", err)
	_, err = checkpoints.Open(t.Context(), dirs...)
	check("export", err)
	_, err = checkpoints.Copy(t.Context(), dirs[:1], dirs[1], 0, 0)
	check("copy", err)
	_, err = checkpoints.Flush(t.Context(), dirs[1:], dirs[0], 0)
	check("flush", err)
	// An epoch that somebody copied is found, and is never used, repaired or removed.
	if err := os.CopyFS(filepath.Join(dirs[0], "epoch-0000000005"),
		os.DirFS(filepath.Join(dirs[1], "epoch-0000000005"))); err != nil {
		t.Fatal(err)
	}
	v, err := checkpoints.Inspect(t.Context(), dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	if found := v.VerifyDirs(); len(found) != 1 || found[0].Kind != checkpoints.OtherRun ||
		!strings.Contains(found[0].Err.Error(), "epoch belongs to the run that began 2033-05-18") {
		t.Errorf("verify finds %+v", found)
	}
	if expected, err := v.Expected(); err != nil || slices.Contains(expected, 5) {
		t.Errorf("epochs %v, %v", expected, err)
	}
	if _, err := checkpoints.Prune(t.Context(), dirs[:1], checkpoints.PruneRules{Keep: 1}); err == nil ||
		!strings.Contains(err.Error(), "is not removed") {
		t.Errorf("prune says nothing of what it leaves: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dirs[0], "epoch-0000000005", "manifest")); err != nil {
		t.Errorf("prune removed the epoch of another run: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dirs[0], "epoch-0000000001")); err == nil {
		t.Error("prune kept an epoch for the sake of one of another run")
	}
}
