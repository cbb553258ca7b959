package storage

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// heartbeat keeps the locks of a store alive.
type heartbeat struct {
	stop chan struct{}
	done sync.WaitGroup

	mu   sync.Mutex
	lost error // guarded by mu: a directory has gone to another run
}

// guard takes part in the lock of a level's directory.
func (s *Store) guard(ctx context.Context, l *levelState) error {
	if s.opt.Run == "" {
		return nil
	}
	want := &format.Lock{Run: s.opt.Run, Owner: level.ThisProcess()}
	owned, err := l.Lock(ctx, want, s.beatOf(l))
	if err == nil && owned {
		l.lock = want
	}
	return err
}

// beatOf is how often the lock of a level is rewritten.
func (s *Store) beatOf(l *levelState) time.Duration { return cmp.Or(s.opt.beat, level.BeatOf(l.Level)) }

// keepAlive starts beating for what this store owns.
func (s *Store) keepAlive() {
	s.heartbeat.stop = make(chan struct{})
	for _, l := range s.levels {
		if l.lock == nil {
			continue
		}
		s.heartbeat.done.Go(func() {
			tick := time.NewTicker(s.beatOf(l))
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					s.heartbeat.note(l.Beat(l.lock))
				case <-s.heartbeat.stop:
					return
				}
			}
		})
	}
}

// note remembers that a directory is lost. That it could not be written to will
// be noticed by others.
func (p *heartbeat) note(err error) {
	var busy *BusyError
	if !errors.As(err, &busy) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = err
}

func (p *heartbeat) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// letGo stops beating and gives the directories up.
func (s *Store) letGo() error {
	if s.heartbeat.stop == nil {
		return nil
	}
	close(s.heartbeat.stop)
	s.heartbeat.done.Wait()
	s.heartbeat.stop = nil
	return s.dropLocks()
}

func (s *Store) dropLocks() error {
	var err error
	for _, l := range s.levels {
		if l.lock != nil {
			err = errors.Join(err, l.Unlock(l.lock))
		}
	}
	return err
}
