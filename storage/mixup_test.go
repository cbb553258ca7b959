package storage

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// TestManifestOfAnotherLevel: a manifest that lies in a directory of another
// level is damage there, also where its groups cannot be divided by.
func TestManifestOfAnotherLevel(t *testing.T) {
	w := flipWorld(t)
	b, err := level.ReadFile(w.fs, "/global/"+format.EpochName(1)+"/manifest", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	file := "/local0/" + format.EpochName(1) + "/manifest"
	if err := errors.Join(w.fs.Remove(file), level.WriteFile(w.fs, file, b)); err != nil {
		t.Fatal(err)
	}
	_, err = w.stores[0].levels[0].ReadManifest(1)
	if !errors.Is(err, ErrCorrupt) ||
		!strings.Contains(err.Error(), "manifest of level global in a directory of level local") {
		t.Errorf("got %v, want that it is of another level", err)
	}
	if err := w.check(1); err != nil {
		t.Errorf("the other level does not serve: %v", err)
	}
	if n := findings(t, w.fs, "/local0", "/local1", "/global"); n == 0 {
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
		{LevelParity, 4, 2, true}, {LevelParity, 254, 2, true}, {LevelLocal, 0, 0, true},
		{LevelParity, 0, 0, false}, {LevelParity, 0, 2, false}, {LevelParity, 4, 0, false},
		{LevelParity, 255, 2, false}, {LevelParity, 65535, 65535, false},
		{LevelLocal, 4, 2, false}, {LevelGlobal, 0, 1, false},
	} {
		m := format.Manifest{Epoch: 1, Size: 1, Job: "j", Level: c.level, Data: c.data, Parity: c.parity,
			Shards: []ShardInfo{{Pack: format.NoPack}}}
		if _, err := format.DecodeManifest("f", m.Encode()); (err == nil) != c.good {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	m := format.Manifest{Epoch: 1, Size: 1, Job: "j", Level: LevelGlobal,
		Shards: []ShardInfo{{Base: 1 << 62, ShardBytes: 1 << 62}}}
	if _, err := format.DecodeManifest("f", m.Encode()); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a shard beyond any file: got %v, want ErrCorrupt", err)
	}
}
