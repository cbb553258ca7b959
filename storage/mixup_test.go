package storage_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/jobtest"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// TestManifestOfAnotherLevel: a manifest that lies in a directory of another
// level is damage there, also where its groups cannot be divided by.
func TestManifestOfAnotherLevel(t *testing.T) {
	w := jobtest.OneEpoch(t)
	b, err := level.ReadFile(w.FS, "/global/"+format.EpochName(1)+"/manifest", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	file := "/local0/" + format.EpochName(1) + "/manifest"
	if err := errors.Join(w.FS.Remove(file), level.WriteFile(w.FS, file, b)); err != nil {
		t.Fatal(err)
	}
	_, err = w.At(0, 0).ReadManifest(1)
	if !errors.Is(err, storage.ErrCorrupt) ||
		!strings.Contains(err.Error(), "manifest of level global in a directory of level local") {
		t.Errorf("got %v, want that it is of another level", err)
	}
	if err := w.Check(1); err != nil {
		t.Errorf("the other level does not serve: %v", err)
	}
	if n := jobtest.Findings(t, w.FS, "/local0", "/local1", "/global"); n == 0 {
		t.Error("verify does not see it")
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
