package format_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// layoutsDir has manifests of version 2.
const layoutsDir = "testdata/v2"

// layoutOf says that three ranks have three rows each of an array of 9 x 4 numbers, every other column in a part of
// its own, and a value that is the same everywhere.
func layoutOf(rank int) *storage.Layout {
	rows := []layout.Span{layout.Run(int64(rank)*3, 3)}
	odd := func(start int64) []layout.Span { return []layout.Span{{Start: start, Count: 1, Stride: 2, Times: 2}} }
	step := layout.Local{Array: layout.Array{Name: "step", Type: "value int", Elem: 1, Dims: []int64{8},
		Kind: layout.Replicated, Section: "array/step"}, Sum: [16]byte{1, 2, 3}}
	if rank == 0 {
		step.Parts = []layout.Part{layout.Box([]int64{0}, []int64{8})}
	}
	return &storage.Layout{Quiet: true, PerRank: rank == 2, Arrays: []layout.Local{
		{Array: layout.Array{Name: "u", Type: "float64", Elem: 8, Dims: []int64{9, 4}, Kind: layout.Divided,
			Section: "array/u"},
			Parts: []layout.Part{{Spans: [][]layout.Span{rows, odd(0)}}, {Spans: [][]layout.Span{rows, odd(1)}}}},
		step}}
}

// layoutSections are sections of a rank with a layout; the array changes from epoch to epoch, the layout does not.
func layoutSections(rank int, e storage.Epoch) []storage.Section {
	return sectionsWith(layoutOf(rank), rank, e)
}

func sectionsWith(l *storage.Layout, rank int, e storage.Epoch) []storage.Section {
	b, err := l.Encode()
	if err != nil {
		panic(err)
	}
	u := make(storage.Bytes, 3*4*8)
	for i := range u {
		u[i] = byte(i*rank + int(e))
	}
	secs := []storage.Section{{Name: "array/u", Size: int64(len(u)), Source: u},
		{Name: storage.LayoutSection, Size: int64(len(b)), Source: storage.Bytes(b)}}
	if rank == 0 {
		secs = append(secs, storage.Section{Name: "array/step", Size: 8, Source: make(storage.Bytes, 8)})
	}
	return secs
}

// itemsDir has manifests of version 2 with sets of items.
const itemsDir = "testdata/v2-items"

// itemSections are sections of a rank with two sets: cells by integers, of which rank 1 has none, and names.
func itemSections(rank int, e storage.Epoch) []storage.Section {
	cells := layout.Local{Array: layout.Array{Name: "cells", Type: "map[int64][]float64", Elem: 8,
		Kind: layout.KeyedInt, Section: "array/cells"}}
	for i := range 100 * (rank%2 ^ 1) {
		cells.Items = append(cells.Items, layout.Item{Key: layout.Key{Int: int64(i*i*i*20000 - 7 + rank)},
			Bytes: int64(i % 4 * 8)})
	}
	names := layout.Local{Array: layout.Array{Name: "names", Type: "map[string]int32", Elem: 4,
		Kind: layout.KeyedString, Section: "array/names"},
		Items: []layout.Item{{Bytes: 4}, {Key: layout.Key{Str: "böx"}, Bytes: 4}}[min(rank, 1) : min(rank, 1)+1]}
	if rank == 2 {
		names.Items = nil
	}
	l := &storage.Layout{Quiet: true, Arrays: []layout.Local{cells, names}}
	b, err := l.Encode()
	if err != nil {
		panic(err)
	}
	secs := []storage.Section{{Name: storage.LayoutSection, Size: int64(len(b)), Source: storage.Bytes(b)}}
	for i := range l.Arrays {
		x := make(storage.Bytes, l.Arrays[i].Elems()*l.Arrays[i].Elem)
		for k := range x {
			x[k] = byte(k*(rank+3) + int(e))
		}
		secs = append(secs, storage.Section{Name: l.Arrays[i].Section, Size: int64(len(x)), Source: x})
	}
	return secs
}

// TestLayoutsAreCarried: every manifest of every level says what the ranks have of arrays, whichever way the epoch
// came there; so does one that repair makes again from shards and packs.
func TestLayoutsAreCarried(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(layoutsDir)); err != nil {
		t.Fatal(err)
	}
	check := func(what string, from string) {
		t.Helper()
		lost := t.TempDir()
		if err := os.CopyFS(lost, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		for _, n := range goldenNodes { // all levels but one
			for _, l := range []string{"local", "partner", "parity"} {
				if l != from && !(from == "parity" && l == "local" && n != "n1") {
					removeEpochs(t, filepath.Join(lost, n, l))
				}
			}
		}
		if from != "global" {
			removeEpochs(t, filepath.Join(lost, "global"))
		}
		c := &jobtest.Cluster{T: t, Nodes: goldenNodes, Stores: goldenStores(t, lost, storage.Identity{})}
		if err := c.Learn(); err != nil {
			t.Fatal(err)
		}
		for r, s := range c.Stores {
			infos, err := s.Entries(t.Context(), 2)
			if err != nil {
				t.Errorf("%s: rank %d: %v", what, r, err)
				continue
			}
			for k := range infos {
				if !reflect.DeepEqual(infos[k].Layout, layoutOf(k)) {
					t.Errorf("%s: rank %d: got %+v of rank %d", what, r, infos[k].Layout, k)
				}
			}
			sh, err := s.FetchRank(t.Context(), 2, 1)
			if err != nil {
				t.Errorf("%s: rank %d: %v", what, r, err)
				continue
			}
			if !reflect.DeepEqual(sh.Layout(), layoutOf(1)) {
				t.Errorf("%s: the shard of rank 1 has the layout %+v", what, sh.Layout())
			}
			if err := sh.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	levels := []string{"local", "partner", "parity", "global"}
	for _, l := range levels {
		check(l, l)
	}
	var dirs []string
	for _, n := range goldenNodes {
		for _, l := range levels[:3] {
			dirs = append(dirs, filepath.Join(dir, n, l))
		}
	}
	dirs = append(dirs, filepath.Join(dir, "global"))
	for _, d := range []string{dirs[0], dirs[len(dirs)-1]} { // the manifests of a local directory and of the global one
		if err := os.WriteFile(filepath.Join(d, "epoch-0000000002", "manifest"), []byte("damaged"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := checkpoints.Repair(t.Context(), dirs, checkpoints.RepairRules{}); err != nil {
		t.Fatal(err)
	}
	check("repaired", "global")
	check("repaired", "local")
}

func removeEpochs(t *testing.T, dir string) {
	t.Helper()
	for _, e := range []string{"epoch-0000000001", "epoch-0000000002"} {
		if err := os.RemoveAll(filepath.Join(dir, e)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWrongLayoutsAreRefused: an epoch whose ranks do not have each element once is committed nowhere, and the error
// names the array, the ranks and the box.
func TestWrongLayoutsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(l *storage.Layout, rank int)
		want  any
	}{
		"hole": {func(l *storage.Layout, rank int) {
			if rank == 1 {
				l.Arrays[0].Parts = l.Arrays[0].Parts[:1]
			}
		}, new(*layout.HoleError)},
		"shift": {func(l *storage.Layout, rank int) {
			if rank == 2 {
				l.Arrays[0].Parts[0].Spans[0] = []layout.Span{layout.Run(5, 4)}
			}
		}, new(*layout.OverlapError)},
		"two shifts": {func(l *storage.Layout, rank int) {
			if rank == 2 {
				l.Arrays[0].Parts[0].Spans[0][0].Start-- // of both parts
			}
		}, new(*layout.HoleError)},
		"type": {func(l *storage.Layout, rank int) {
			if rank == 1 {
				l.Arrays[0].Type = "int64"
			}
		}, new(*layout.DiffersError)},
		"key": {func(l *storage.Layout, rank int) {
			l.Arrays[1] = layout.Local{Array: layout.Array{Name: "x", Type: "map[int]int8", Elem: 1,
				Kind: layout.KeyedInt, Section: "array/step"},
				Items: []layout.Item{{Key: layout.Key{Int: int64(rank % 2)}}}}
		}, new(*layout.DuplicateError)},
	} {
		t.Run(name, func(t *testing.T) {
			c0 := jobtest.NewCluster(t, goldenNodes...)
			c0.Start(storage.LevelConfig{Name: storage.LevelLocal})
			err := c0.TryTake(1, func(rank int, e storage.Epoch) []storage.Section {
				l := layoutOf(rank)
				c.spoil(l, rank)
				return sectionsWith(l, rank, e)
			}, storage.LevelLocal)
			if !errors.As(err, c.want) {
				t.Fatalf("got %v, want a %T", err, c.want)
			}
			for r, s := range c0.Stores {
				if list, _, err := s.Candidates(t.Context()); err != nil || len(list) > 0 {
					t.Errorf("rank %d can restore %v (%v) of an epoch that was refused", r, fmt.Sprint(list), err)
				}
			}
		})
	}
}
