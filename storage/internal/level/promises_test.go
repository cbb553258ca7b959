package level_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
)

func (s *suite) commit() {
	infos, err := s.bring(s.Context(), 1)
	if err != nil {
		s.Fatal(err)
	}
	if err := s.stores.Learn(s.Context()); err != nil {
		s.Fatal(err)
	}
	if s.offers(1) {
		s.Error("the epoch is offered before it is committed")
	}
	if err := s.stores.Commit(1, s.level.Config.Name, infos); err != nil {
		s.Fatal(err)
	}
	if err := s.stores.Learn(s.Context()); err != nil {
		s.Fatal(err)
	}
	if !s.offers(1) {
		s.Error("the epoch is not offered after it was committed")
	}
}

// restoreAlone takes away this rank's local shard, one rank at a time where the
// level computes shards from those of the others.
func (s *suite) restoreAlone() {
	s.take(1)
	if s.level.Config.Name == storage.LevelParity {
		node := s.level.Nodes[0]
		if err := os.RemoveAll(filepath.Join(s.dir, node, storage.LevelLocal, "epoch-0000000001")); err != nil {
			s.Fatal(err)
		}
	} else if s.level.Config.Name != storage.LevelLocal {
		for _, node := range s.level.Nodes {
			if err := os.RemoveAll(filepath.Join(s.dir, node, storage.LevelLocal, "epoch-0000000001")); err != nil {
				s.Fatal(err)
			}
		}
	}
	if err := s.stores.Learn(s.Context()); err != nil {
		s.Fatal(err)
	}
	if err := s.restore(1); err != nil {
		s.Error(err)
	}
}

func (s *suite) final() {
	infos := s.take(1)
	if err := s.stores.Commit(1, s.level.Config.Name, infos); err != nil {
		s.Errorf("the same manifest again: %v", err)
	}
	infos[0].Bytes++
	if err := s.stores.Commit(1, s.level.Config.Name, infos); !errors.Is(err, storage.ErrCommitted) {
		s.Errorf("another manifest: got %v, want ErrCommitted", err)
	}
	for _, st := range s.stores {
		if err := st.Discard(s.Context(), 1, s.level.Config.Name); !errors.Is(err, storage.ErrCommitted) {
			s.Errorf("discard: got %v, want ErrCommitted", err)
		}
	}
	if _, err := s.bring(s.Context(), 1); !errors.Is(err, storage.ErrCommitted) {
		s.Errorf("put: got %v, want ErrCommitted", err)
	}
	if err := s.stores[0].Commit(s.Context(), 2, s.level.Config.Name, nil); err == nil {
		s.Error("a manifest without shards was committed")
	}
	if err := s.restore(1); err != nil {
		s.Error(err)
	}
}

func (s *suite) discard() {
	s.take(1)
	if _, err := s.bring(s.Context(), 2); err != nil {
		s.Fatal(err)
	}
	for _, st := range s.stores {
		if err := st.Discard(s.Context(), 2, s.level.Config.Name); err != nil {
			s.Fatal(err)
		}
	}
	if s.offers(2) {
		s.Error("a discarded epoch is offered")
	}
	for _, dir := range []string{s.dir, filepath.Join(s.dir, "*")} {
		left, err := filepath.Glob(filepath.Join(dir, s.level.Config.Name, "epoch-0000000002", "*"))
		if err != nil || len(left) > 0 {
			s.Errorf("%v, a discarded epoch left %v", err, left)
		}
	}
	if err := s.restore(1); err != nil {
		s.Errorf("the epoch before it: %v", err)
	}
}

func (s *suite) pruneAll() {
	for _, st := range s.stores {
		if _, err := st.Prune(s.Context()); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *suite) prune() {
	const epochs = 5 // Keep is 2
	for e := storage.Epoch(1); e <= epochs; e++ {
		s.take(e)
		s.pruneAll()
	}
	if err := s.stores.Learn(s.Context()); err != nil {
		s.Fatal(err)
	}
	for e := storage.Epoch(1); e <= epochs; e++ {
		want := e > epochs-2
		if got := s.offers(e); got != want {
			s.Errorf("epoch %d: offered is %v, want %v", e, got, want)
		}
		if want {
			if err := s.restore(e); err != nil {
				s.Errorf("epoch %d: %v", e, err)
			}
		}
	}
}

func (s *suite) kept() {
	if !s.level.Shared || s.level.Config.Name != storage.LevelGlobal {
		return // elsewhere nothing is kept
	}
	dir := s.dirOf(storage.LevelGlobal, "")
	const epochs = 5 // Keep is 2
	for e := storage.Epoch(1); e <= epochs; e++ {
		s.take(e)
		if e == 1 {
			if err := checkpoints.PinEpoch(s.Context(), dir, e, "first"); err != nil {
				s.Fatal(err)
			}
		}
		s.pruneAll()
	}
	if list, err := checkpoints.Pins(s.Context(), dir); err != nil || len(list) != 1 || list[0].Name != "first" {
		s.Errorf("got %v, %v, want epoch 1 by its name", list, err)
	}
	if err := s.restore(1); err != nil {
		s.Errorf("the kept epoch: %v", err)
	}
	if err := checkpoints.UnpinEpoch(s.Context(), dir, 1); err != nil {
		s.Fatal(err)
	}
	s.pruneAll()
	if err := s.stores.Learn(s.Context()); err != nil {
		s.Fatal(err)
	}
	if s.offers(1) {
		s.Error("epoch 1 is kept no longer, and is still there")
	}
}

func (s *suite) cancel() {
	s.take(1)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if _, err := s.bring(ctx, 2); !errors.Is(err, context.Canceled) {
		s.Errorf("got %v, want context.Canceled", err)
	}
	if s.offers(2) {
		s.Error("a cancelled epoch is offered")
	}
	if err := s.restore(1); err != nil {
		s.Errorf("the epoch before it: %v", err)
	}
	s.take(3)
	if err := s.restore(3); err != nil {
		s.Errorf("the epoch after it: %v", err)
	}
}

// oddSizes puts sections around the lengths at which something changes.
func (s *suite) oddSizes() {
	s.sections = func(rank int, e storage.Epoch) []storage.Section {
		var secs []storage.Section
		for i, n := range []int{0, 1, 4095, 4096, 65535, 65536, 262143, 262144, 262145, 4<<20 - 1, 4<<20 + 1} {
			b := make([]byte, n)
			for j := range min(n, 4096) {
				b[j] = byte(j*7 + rank + int(e)*3)
			}
			for at := 4096; at < n; at += 4096 { // each page begins with another byte
				copy(b[at:], b[:4096])
				b[at] = byte(at >> 12)
			}
			secs = append(secs, storagetest.Section(string(rune('a'+i)), b))
		}
		return secs
	}
	s.take(1)
	if err := s.restore(1); err != nil {
		s.Error(err)
	}
}
