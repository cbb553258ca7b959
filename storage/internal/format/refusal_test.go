package format_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// TestNewerVersionsAreRefused raises the version of each kind of file. A reader
// says so with both numbers; it does not call it damage, and it does not guess.
func TestNewerVersionsAreRefused(t *testing.T) {
	raise := func(b []byte, at, to int) []byte {
		n := int(binary.LittleEndian.Uint32(b[at+12:])) + format.RecordExtra
		binary.LittleEndian.PutUint16(b[at+10:], uint16(to))
		binary.LittleEndian.PutUint32(b[at+n-4:], format.CRC(b[at:at+n-4]))
		return b
	}
	for name, known := range map[string]int{format.MarkerName: 2, format.EpochName(1) + "/" + format.ManifestName: 3} {
		w := jobtest.OneEpoch(t)
		file := "/local0/" + name
		b, err := level.ReadFile(w.FS, file, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.FS.Remove(file), level.WriteFile(w.FS, file, raise(b, 0, known+1))); err != nil {
			t.Fatal(err)
		}
		d := w.At(0, 0)
		if name == format.MarkerName {
			_, err = level.ReadMarker(d)
		} else {
			_, err = d.ReadManifest(1)
			if err := w.Check(1); err != nil {
				t.Errorf("the other level: %v", err)
			}
		}
		var bad *storage.VersionError
		if !errors.As(err, &bad) || bad.Have != known+1 || bad.Known != known || errors.Is(err, storage.ErrCorrupt) ||
			!strings.Contains(err.Error(), fmt.Sprintf("version %d, this build reads up to %d: use a newer holdfast",
				known+1, known)) {
			t.Errorf("%s: got %v, want a *VersionError", name, err)
		}
	}
}

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
			_, err = w.Stores[0].Put(t.Context(), 1, storage.LevelLocal, secs)
			if err == nil || !strings.Contains(err.Error(), "exceeds the format's limit") {
				t.Errorf("got %v, want it to be refused", err)
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
	infos, err := w.Stores.InTurn(func(s *storage.Store, r int) (storage.ShardInfo, error) {
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

// TestImpossibleShapes: a manifest with groups that cannot be is damage.
func TestImpossibleShapes(t *testing.T) {
	for _, c := range []struct {
		level        string
		data, parity int
		good         bool
	}{
		{storage.LevelParity, 4, 2, true}, {storage.LevelParity, 254, 2, true}, {storage.LevelLocal, 0, 0, true},
		{storage.LevelParity, 0, 0, false}, {storage.LevelParity, 0, 2, false}, {storage.LevelParity, 4, 0, false},
		{storage.LevelParity, 255, 2, false}, {storage.LevelParity, 65535, 65535, false},
		{storage.LevelLocal, 4, 2, false}, {storage.LevelGlobal, 0, 1, false},
	} {
		m := format.Manifest{Epoch: 1, Size: 1, Job: "j", Level: c.level, Data: c.data, Parity: c.parity,
			Shards: []storage.ShardInfo{{Pack: format.NoPack}}}
		if _, err := format.DecodeManifest("f", m.Encode()); (err == nil) != c.good {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	m := format.Manifest{Epoch: 1, Size: 1, Job: "j", Level: storage.LevelGlobal,
		Shards: []storage.ShardInfo{{Base: 1 << 62, ShardBytes: 1 << 62}}}
	if _, err := format.DecodeManifest("f", m.Encode()); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("a shard beyond any file: got %v, want ErrCorrupt", err)
	}
}
