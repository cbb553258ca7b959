package level

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Guard holds the locks of places for one run of a job, and keeps them alive.
type Guard struct {
	run   string
	beat  time.Duration // 0: that of each place
	locks []*ownLock
	stop  chan struct{}
	done  sync.WaitGroup

	mu   sync.Mutex
	lost error // guarded by mu: a place has gone to another run
}

// ownLock is the lock of a place.
type ownLock struct {
	at Level

	mu      sync.Mutex   // guards the fields below, from KeepAlive on
	lock    *format.Lock // of again while taking
	removed bool         // somebody has removed it
	taking  bool         // it is being taken again
}

type beatKey struct{}

// WithBeat makes the guards of a context rewrite their locks so often. Tests do not wait as long as people do.
func WithBeat(ctx context.Context, beat time.Duration) context.Context {
	return context.WithValue(ctx, beatKey{}, beat)
}

// NewGuard returns the guard of a run, which rewrites its locks as often as each place needs, or as WithBeat sets.
// Without a name of the run it guards nothing.
func NewGuard(ctx context.Context, run string) *Guard {
	beat, _ := ctx.Value(beatKey{}).(time.Duration)
	return &Guard{run: run, beat: beat}
}

// Take takes part in the lock of a place. One that another run has is a *BusyError.
func (g *Guard) Take(ctx context.Context, l Level) error {
	if g.run == "" {
		return nil
	}
	want := &format.Lock{Run: g.run, Owner: ThisProcess()}
	owned, err := l.Lock(ctx, want, g.beatOf(l))
	if err == nil && owned {
		g.locks = append(g.locks, &ownLock{at: l, lock: want})
	}
	return err
}

// Unused returns an error if the run may not even look at a place that it does not take.
func (g *Guard) Unused(ctx context.Context, l Level) error {
	if g.run == "" {
		return nil
	}
	return l.Unused(ctx, g.run, g.beatOf(l))
}

func (g *Guard) beatOf(l Level) time.Duration { return cmp.Or(g.beat, BeatOf(l)) }

// KeepAlive starts beating for the taken places. It is called once, and Release after it.
func (g *Guard) KeepAlive() {
	g.stop = make(chan struct{})
	for _, h := range g.locks {
		g.done.Go(func() {
			tick := time.NewTicker(g.beatOf(h.at))
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					h.mu.Lock()
					if !h.removed {
						err := h.at.Beat(h.lock)
						h.removed = errors.Is(err, fs.ErrNotExist)
						g.note(err)
					}
					h.mu.Unlock()
				case <-g.stop:
					return
				}
			}
		})
	}
}

// Retake takes the lock of a place once more that somebody has removed. It is called where the run writes there anyway,
// since the program may remove and make its directories while nothing is under way.
func (g *Guard) Retake(ctx context.Context, at Level) error {
	for _, h := range g.locks {
		if h.at.Path() == at.Path() {
			err := h.retake(ctx, g.beatOf(at))
			g.note(err)
			return err
		}
	}
	return nil
}

func (h *ownLock) retake(ctx context.Context, beat time.Duration) error {
	h.mu.Lock()
	take := h.removed && !h.taking
	h.taking = h.taking || take
	h.mu.Unlock()
	if !take {
		return nil
	}
	_, err := h.at.Lock(ctx, h.lock, beat)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removed, h.taking = err != nil, false
	return err
}

// note remembers that a place is lost. That it could not be written to will
// be noticed by others.
func (g *Guard) note(err error) {
	if !errors.As(err, new(*BusyError)) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost = err
}

// Err reports that another run has taken a place (*BusyError).
func (g *Guard) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lost
}

// Release stops beating and gives the places up. Further calls do nothing.
func (g *Guard) Release() error {
	if g.stop != nil {
		close(g.stop)
		g.done.Wait()
		g.stop = nil
	}
	var err error
	for _, h := range g.locks {
		err = errors.Join(err, h.at.Unlock(h.lock))
	}
	g.locks = nil
	return err
}
