package storage_test

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
)

func TestLevels(t *testing.T) {
	for name, l := range map[string]storagetest.Level{
		"local":           {Config: local, Nodes: nodeNames(2)},
		"local, shared":   {Config: local, Nodes: []string{"n", "n"}},
		"partner":         {Config: partner, Nodes: nodeNames(2)},
		"partner, 2 of 3": {Config: storage.LevelConfig{Name: storage.LevelPartner, Copies: 2}, Nodes: nodeNames(3)},
		"parity 2+1": {Config: storage.LevelConfig{Name: storage.LevelParity, Data: 2, Parity: 1},
			Nodes: nodeNames(3)},
		"global": {Config: storage.LevelConfig{Name: storage.LevelGlobal}, Nodes: nodeNames(2), Shared: true},
		"global, compress": {Config: storage.LevelConfig{Name: storage.LevelGlobal, CompressAlways: true},
			Nodes: nodeNames(2), Shared: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storagetest.Run(t, l)
		})
	}
}
