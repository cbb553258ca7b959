package format_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

var golden = flag.Bool("golden", false, "write the directories of testdata that a test is about again; only before "+
	"their version is released")

const goldenDir = "testdata/v1"

// ownedDir has manifests of version 3, and the other records with the identity of the run goldenRun.
const ownedDir = "testdata/v3"

var goldenRun = storage.Identity{ID: [16]byte{0x60, 0x1d}, Began: 1_700_000_000_000_000_000}

// goldenNodes are the nodes of the three ranks of the golden job.
var goldenNodes = jobtest.NodeNames(3)

// goldenSections compress, repeat and are zero in parts, so that every kind of
// chunk is there.
func goldenSections(rank int, e storage.Epoch) []storage.Section {
	steady := make(storage.Bytes, 6000)
	for i := range steady {
		steady[i] = byte(i*i>>4 + rank)
	}
	ramp := make(storage.Bytes, 8000) // numbers that only a shuffle compresses
	for i := range ramp {
		ramp[i] = byte((i/8)*(i%8*31+1) + int(e))
	}
	secs := []storage.Section{
		{Name: "step", Source: storage.Bytes{byte(e), byte(rank), 0, 0}},
		{Name: "steady", Source: steady},
		{Name: "ramp", Source: ramp},
		{Name: "zero", Source: make(storage.Bytes, 5000)},
		{Name: "empty", Source: storage.Bytes{}},
	}
	for i := range secs {
		secs[i].Size = int64(len(secs[i].Source.(storage.Bytes)))
	}
	return secs
}

func goldenStores(t *testing.T, dir string, run storage.Identity) []*storage.Store {
	t.Helper()
	net := storagetest.NewLoopback(len(goldenNodes))
	var out []*storage.Store
	for r, n := range goldenNodes {
		s, err := storage.Open(t.Context(),
			storage.Options{Job: "golden", Rank: r, Size: len(goldenNodes),
				Node: n, Nodes: goldenNodes, Transport: net.Rank(r), Identity: run, Levels: []storage.LevelConfig{
					{Name: storage.LevelLocal, Dir: filepath.Join(dir, n, "local")},
					{Name: storage.LevelPartner, Dir: filepath.Join(dir, n, "partner")},
					{Name: storage.LevelParity, Dir: filepath.Join(dir, n, "parity"), Data: 2, Parity: 1},
					{Name: storage.LevelGlobal, Dir: filepath.Join(dir, "global"), CompressAlways: true},
				}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		out = append(out, s)
	}
	return out
}

// writeGolden makes golden directories.
func writeGolden(t *testing.T, goldenDir string, goldenSections jobtest.SectionsFor, run storage.Identity) {
	t.Helper()
	if err := os.RemoveAll(goldenDir); err != nil {
		t.Fatal(err)
	}
	for _, n := range goldenNodes {
		for _, l := range []string{"local", "partner", "parity"} {
			if err := os.MkdirAll(filepath.Join(goldenDir, n, l), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.MkdirAll(filepath.Join(goldenDir, "global"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := &jobtest.Cluster{T: t, Nodes: goldenNodes, Stores: goldenStores(t, goldenDir, run)}
	for e := storage.Epoch(1); e <= 2; e++ {
		if err := c.TryTake(e, goldenSections, storage.LevelLocal, storage.LevelPartner,
			storage.LevelParity); err != nil {
			t.Fatal(err)
		}
		infos, err := c.Stores[0].FlushNode(t.Context(), e, storage.LevelLocal, storage.LevelGlobal, []int{0, 1})
		if err != nil {
			t.Fatal(err)
		}
		info, err := c.Stores[2].Flush(t.Context(), e, storage.LevelLocal, storage.LevelGlobal, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range c.Stores {
			if err := s.Commit(t.Context(), e, storage.LevelGlobal, append(infos, info)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestGoldenDirectories opens what each version wrote, and must do so for ever:
// every level alone gives the right bytes.
func TestGoldenDirectories(t *testing.T) {
	var none storage.Identity
	t.Run("v1", func(t *testing.T) { testGolden(t, goldenDir, goldenSections, none) })
	t.Run("v2", func(t *testing.T) { testGolden(t, layoutsDir, layoutSections, none) })
	t.Run("v2-items", func(t *testing.T) { testGolden(t, itemsDir, itemSections, none) })
	t.Run("v3", func(t *testing.T) { testGolden(t, ownedDir, layoutSections, goldenRun) })
}

func testGolden(t *testing.T, goldenDir string, goldenSections jobtest.SectionsFor, run storage.Identity) {
	if *golden {
		writeGolden(t, goldenDir, goldenSections, run)
	}
	for level, lose := range map[string][]string{
		storage.LevelLocal:   nil,
		storage.LevelPartner: {"n0/local", "n1/local", "n2/local"},
		storage.LevelParity:  {"n1/local", "n1/partner", "n2/partner"},
		storage.LevelGlobal:  {"n0/local", "n1/local", "n2/local", "n0/partner", "n1/partner", "n2/partner"},
	} {
		t.Run(level, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(goldenDir)); err != nil {
				t.Fatal(err)
			}
			for _, l := range lose {
				for _, e := range []string{"epoch-0000000001", "epoch-0000000002"} {
					if err := os.RemoveAll(filepath.Join(dir, l, e)); err != nil {
						t.Fatal(err)
					}
				}
			}
			c := &jobtest.Cluster{T: t, Nodes: goldenNodes, Stores: goldenStores(t, dir, run)}
			if err := c.Learn(); err != nil {
				t.Fatal(err)
			}
			for e := storage.Epoch(1); e <= 2; e++ {
				from, err := c.Stores.Restore(e, goldenSections)
				if err != nil {
					t.Fatalf("epoch %d: %v", e, err)
				}
				if from[1] != level {
					t.Errorf("epoch %d: rank 1 restored from %s, want %s", e, from[1], level)
				}
			}
		})
	}
}

// TestGoldenVerifies reads every byte of the golden directories.
func TestGoldenVerifies(t *testing.T) {
	for _, dir := range []string{goldenDir, layoutsDir, itemsDir, ownedDir} {
		t.Run(filepath.Base(dir), func(t *testing.T) { verifyGolden(t, dir) })
	}
}

func verifyGolden(t *testing.T, goldenDir string) {
	dirs := []string{filepath.Join(goldenDir, "global")}
	for _, n := range goldenNodes {
		for _, l := range []string{"local", "partner", "parity"} {
			dirs = append(dirs, filepath.Join(goldenDir, n, l))
		}
	}
	v, err := checkpoints.Open(context.Background(), dirs...)
	if err != nil {
		t.Fatal(err)
	}
	for e := storage.Epoch(1); e <= 2; e++ {
		found, err := v.Verify(context.Background(), e)
		if err != nil || len(found) != 0 {
			t.Errorf("epoch %d: got %v, %v", e, found, err)
		}
	}
}

// TestVerifySaysWhereGoodCopiesAre plants a fault in a local shard and takes
// away what else has the bytes, level by level.
func TestVerifySaysWhereGoodCopiesAre(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(goldenDir)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "n1/local/epoch-0000000001/rank-000001.shard")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[5000] ^= 1
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	locals := []string{"n0/local", "n1/local", "n2/local"}
	parities := []string{"n0/parity", "n1/parity", "n2/parity"}
	for _, c := range []struct {
		dirs []string
		want string
		lost bool
	}{
		{slices.Concat(locals, parities, []string{"n2/partner", "global"}), "n2/partner global", false},
		{slices.Concat(locals, []string{"global"}), "global", false},
		{slices.Concat(locals, parities), "parity", false},
		{slices.Concat(locals[1:], parities), "", true},
		{locals, "", true},
	} {
		var dirs []string
		for _, d := range c.dirs {
			dirs = append(dirs, filepath.Join(dir, d))
		}
		v, err := checkpoints.Open(context.Background(), dirs...)
		if err != nil {
			t.Fatal(err)
		}
		found, err := v.Verify(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(found, func(f checkpoints.Finding) bool {
			return f.Rank == 1 && f.Dir.Level == storage.LevelLocal
		})
		if i < 0 {
			t.Fatalf("%v: the fault was not found in %v", c.dirs, found)
		}
		got := strings.ReplaceAll(strings.Join(found[i].GoodAt, " "), dir+"/", "")
		if got != c.want || found[i].Lost != c.lost {
			t.Errorf("%v: good copies at %q, lost %v, want %q, %v", c.dirs, got, found[i].Lost, c.want, c.lost)
		}
	}
}
