package export

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// TestReadInterrupted: a signal between two pieces ends an export.
func TestReadInterrupted(t *testing.T) {
	dir, data := t.TempDir(), make([]byte, 10_000)
	s, err := storage.Open(t.Context(), storage.Options{Job: "sun", Size: 1,
		Levels: []storage.LevelConfig{{Name: storage.LevelGlobal, Dir: dir}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	info, err := s.Put(t.Context(), 3, storage.LevelGlobal, []storage.Section{{Name: "data/energy",
		Size: int64(len(data)), Source: storage.Bytes(data)}})
	if err == nil {
		err = s.Commit(t.Context(), 3, storage.LevelGlobal, []storage.ShardInfo{info})
	}
	if err != nil {
		t.Fatal(err)
	}
	v, err := checkpoints.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	sh, err := v.Fetch(t.Context(), 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	ctx, cancel := context.WithCancel(t.Context())
	item := &coordinated.Saved{Section: "data/energy", Bytes: int64(len(data))}
	r := &itemReader{ctx, sh, item, 0, new(atomic.Int64)}
	piece := make([]byte, 1000)
	if n, err := r.Read(piece); n != len(piece) || err != nil {
		t.Errorf("got %d bytes, %v", n, err)
	}
	cancel()
	if _, err := r.Read(piece); !errors.Is(err, context.Canceled) {
		t.Errorf("after a signal: got %v", err)
	}
}
