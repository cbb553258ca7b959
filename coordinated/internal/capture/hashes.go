package capture

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/storage"
)

// The chunks that a device hashes are those that storage refers to.
const (
	_ = uint(gpustate.HashBytes - storage.ChunkBytes)
	_ = uint(storage.ChunkBytes - gpustate.HashBytes)
)

// mostTables is of how many epochs the hashes are kept: storage refers to one of the newest.
const mostTables = 8

// deviceHashes holds the hashes of a device's contents in the epochs that were written. Epochs that were never
// committed do no harm: storage only asks about committed ones, and the digest tells two of one number apart.
type deviceHashes struct {
	log *slog.Logger

	mu     sync.Mutex
	tables map[storage.Epoch]hashTable
	logged bool
}

// hashTable is the hashes of one capture, by content and chunk.
type hashTable struct {
	digest [16]byte // of the epoch's shard
	chunks [][]gpustate.Hash
}

func (h *deviceHashes) find(e storage.Epoch, digest [16]byte) [][]gpustate.Hash {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t, ok := h.tables[e]; ok && t.digest == digest {
		return t.chunks
	}
	return nil
}

func (h *deviceHashes) add(e storage.Epoch, t hashTable) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tables == nil {
		h.tables = map[storage.Epoch]hashTable{}
	}
	h.tables[e] = t
	epochs := slices.Sorted(maps.Keys(h.tables))
	for _, old := range epochs[:max(len(epochs)-mostTables, 0)] {
		delete(h.tables, old)
	}
}

// captureHashes are those of one capture, computed when they are first asked for: the program
// runs by then.
type captureHashes struct {
	c    *gpustate.Capture
	of   *deviceHashes
	once sync.Once
	list [][]gpustate.Hash // nil: none
}

func (h *captureHashes) get() [][]gpustate.Hash {
	h.once.Do(func() {
		var err error
		if h.list, err = h.c.Hashes(context.Background()); err == nil {
			return
		}
		h.list = nil
		h.of.mu.Lock()
		defer h.of.mu.Unlock()
		if !h.of.logged {
			h.of.logged = true
			h.of.log.Info("holdfast: the device does not hash its chunks; every checkpoint is read from it whole",
				"error", err)
		}
	})
	return h.list
}

// UnchangedSince compares the chunks of a content with those of an epoch that was written.
func (d *deviceContent) UnchangedSince(e storage.Epoch, digest [16]byte) func(chunk int) bool {
	if d.h == nil {
		return nil
	}
	was := d.h.of.find(e, digest)
	if d.i >= len(was) {
		return nil
	}
	now := d.h.get()
	if d.i >= len(now) {
		return nil
	}
	old, fresh := was[d.i], now[d.i]
	return func(k int) bool {
		return k < len(old) && k < len(fresh) && fresh[k] != gpustate.Hash{} && fresh[k] == old[k]
	}
}

// Written reports that the snapshot was written as an epoch's shard with this digest: later epochs may refer to its
// chunks once it is committed. Called before Release.
func (s *Snapshot) Written(e storage.Epoch, digest [16]byte) {
	for _, h := range s.hashes {
		if list := h.get(); list != nil {
			h.of.add(e, hashTable{digest, list})
		}
	}
}

// Distrust forgets all hashes: one of them was wrong.
func (s *Snapshot) Distrust() {
	for _, h := range s.hashes {
		h.of.mu.Lock()
		h.of.tables = nil
		h.of.mu.Unlock()
	}
}
