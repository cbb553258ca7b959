package format_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// TestRefusesWhatCannotBeRead puts shards and manifests beyond each limit of the
// readers. Nothing is written.
func TestRefusesWhatCannotBeRead(t *testing.T) {
	many := func(n int, name func(i int) string) (out []storage.Section) {
		for i := range n {
			out = append(out, storage.Section{Name: name(i), Source: storage.Bytes(nil)})
		}
		return out
	}
	long := strings.Repeat("n", format.MaxNameLen-8)
	for name, secs := range map[string][]storage.Section{
		"index of a large section": {{Name: "x", Source: storage.Bytes(nil),
			Size: format.MaxRecordLen / format.ChunkEntryLen * format.ChunkBytes}},
		"index of two": {{Name: "x", Size: 3 << 40, Source: storage.Bytes(nil)},
			{Name: "y", Size: 3 << 40, Source: storage.Bytes(nil)}},
		"sum of sizes": {{Name: "x", Size: 1 << 62, Source: storage.Bytes(nil)},
			{Name: "y", Size: 1 << 62, Source: storage.Bytes(nil)}},
		"name":  many(1, func(int) string { return long + "123456789" }),
		"names": many(17_000, func(int) string { return long }),
	} {
		t.Run(name, func(t *testing.T) {
			w, err := jobtest.OpenWorld(jobtest.NewWorldFS())
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			ops := 0
			w.FS.SetRule(func(op crashfs.Op) error {
				if op.Kind == "create" || op.Kind == "write" {
					ops++
				}
				return nil
			})
			var over *format.LimitError
			if _, err := w.Stores[0].Put(t.Context(), 1, storage.LevelLocal, secs); !errors.As(err, &over) ||
				over.Have <= over.Most && name != "sum of sizes" {
				t.Errorf("got %v, want a *LimitError", err)
			}
			if ops > 0 {
				t.Errorf("%d files or blocks were written", ops)
			}
		})
	}
}

// TestLargestIndexIsRead takes the largest shard that fits: the reader's limit is
// the writer's.
func TestLargestIndexIsRead(t *testing.T) {
	most := int64((format.MaxRecordLen-format.RecordExtra-28-11)/format.ChunkEntryLen) * format.ChunkBytes
	for extra, want := range map[int64]bool{0: true, 1: false} {
		spec := &shard.Spec{Sections: []storage.Section{{Name: "x", Size: most + extra}}}
		x := format.Index{ChunkBytes: format.ChunkBytes, Sections: []format.Section{{Name: "x", Size: most + extra}}}
		n := x.PlaceSections()
		read := n >= 0 && format.RecordExtra+28+11+n*format.ChunkEntryLen <= format.MaxRecordLen
		if got := spec.Fits() == nil; got != want || read != want {
			t.Errorf("%d bytes: written %v, read %v, want %v", most+extra, got, read, want)
		}
	}
}

func TestManifestThatCannotBeRead(t *testing.T) {
	w, err := jobtest.OpenWorld(jobtest.NewWorldFS())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	infos, err := w.Each(func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return s.Put(t.Context(), 1, storage.LevelLocal, jobtest.SmallSections(r, 1))
	})
	if err != nil {
		t.Fatal(err)
	}
	good := infos[1]
	for name, spoil := range map[string]func(i *storage.ShardInfo){
		"node":   func(i *storage.ShardInfo) { i.Node = strings.Repeat("n", 1<<16) },
		"holder": func(i *storage.ShardInfo) { i.Holders = []string{strings.Repeat("n", 1<<16)} },
		"length": func(i *storage.ShardInfo) { i.ShardBytes = -1 },
		"place":  func(i *storage.ShardInfo) { i.Base = 1 << 62 },
	} {
		infos[1] = good
		spoil(&infos[1])
		if err := w.Stores[0].Commit(t.Context(), 1, storage.LevelLocal, infos); err == nil {
			t.Errorf("%s: the manifest was written", name)
		}
		if have, _ := level.HasManifest(w.At(0, 0), 1); have {
			t.Fatalf("%s: a manifest is there", name)
		}
	}
}
