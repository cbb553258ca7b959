package format_test

import (
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

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
