package storage

import (
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Copied is how many bytes this rank has written for copies between levels since
// Open: how far a Flush is that runs alone.
func (s *Store) Copied() int64 { return s.copied.Load() }

// CopiedTo is Copied for the copies to one level; 0 for one that the store has not.
func (s *Store) CopiedTo(level string) int64 {
	l, err := s.at(level)
	if err != nil {
		return 0
	}
	return l.copied.Load()
}

// Hold keeps copying between levels from starting further writes until release
// is called: the program wants the memory and the cores for a capture. Put is
// not held back.
func (s *Store) Hold() (release func()) { return s.gate.Hold() }

func (s *Store) throttle(to *levelState) *shard.Throttle {
	return &shard.Throttle{Pace: to.pace, Gate: &s.gate, Copied: &s.copied, There: &to.copied}
}
