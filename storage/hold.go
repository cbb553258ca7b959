package storage

import (
	"context"

	"github.com/holdfast-hpc/holdfast/storage/internal/peer"
)

// Epochs in use. Prune removes nothing of an epoch that is held: one that is
// written, rebuilt, copied or read, by this rank or by another one through its
// connection to this store.

// Retain keeps Prune away from an epoch, at all levels, and from the earlier ones
// that hold chunks of it, until release is called. Ranks that read or write in
// each other's directories, as in a Flush or a Rebuild, all Retain it
// before and release it when all are done.
func (s *Store) Retain(ctx context.Context, e Epoch) (release func()) {
	list := []Epoch{e}
	for _, l := range s.levels {
		if !s.looks(l) { // and does not prune
			continue
		}
		if last := l.newest(); last > 0 && e > last { // not there yet: epochs of a run come one after the other
			continue
		}
		if m, err := s.manifestOf(ctx, l, e); err == nil {
			list = append(list, m.Origins()...)
		}
	}
	return s.hold(list...)
}

// hold is Retain for these epochs alone. release may be called again.
func (s *Store) hold(epochs ...Epoch) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range epochs {
		s.inUse[e]++
	}
	done := false
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if done {
			return
		}
		done = true
		for _, e := range epochs {
			if s.inUse[e]--; s.inUse[e] == 0 {
				delete(s.inUse, e)
			}
		}
	}
}

// hosted is a store as other ranks use it.
type hosted struct{ s *Store }

func (h *hosted) InUse(e Epoch) (release func()) { return h.s.hold(e) }

func (h *hosted) Served(level string) (peer.Dir, error) {
	l, err := h.s.at(level)
	if err != nil {
		return peer.Dir{}, err
	}
	return l.served, nil
}

func (s *Store) held(e Epoch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inUse[e] > 0
}
