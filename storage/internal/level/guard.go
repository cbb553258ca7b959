package level

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Guard holds the locks of places for one run of a job, and keeps them alive.
type Guard struct {
	run  string
	beat time.Duration // 0: that of each place
	held []heldLock
	stop chan struct{}
	done sync.WaitGroup

	mu   sync.Mutex
	lost error // guarded by mu: a place has gone to another run
}

// heldLock is the lock of a place. From KeepAlive on it is the beating's alone.
type heldLock struct {
	at   Level
	lock *format.Lock
}

// NewGuard is the guard of a run, which rewrites its locks so often; 0: as often as each place needs it. Without a
// name of the run it guards nothing.
func NewGuard(run string, beat time.Duration) *Guard { return &Guard{run: run, beat: beat} }

// Take takes part in the lock of a place. One that another run has is a *BusyError.
func (g *Guard) Take(ctx context.Context, l Level) error {
	if g.run == "" {
		return nil
	}
	want := &format.Lock{Run: g.run, Owner: ThisProcess()}
	owned, err := l.Lock(ctx, want, g.beatOf(l))
	if err == nil && owned {
		g.held = append(g.held, heldLock{l, want})
	}
	return err
}

// Unused says why the run may not even look at a place that it does not take.
func (g *Guard) Unused(ctx context.Context, l Level) error {
	if g.run == "" {
		return nil
	}
	return l.Unused(ctx, g.run, g.beatOf(l))
}

func (g *Guard) beatOf(l Level) time.Duration { return cmp.Or(g.beat, BeatOf(l)) }

// KeepAlive starts beating for what was taken. It is called once, and Release after it.
func (g *Guard) KeepAlive() {
	g.stop = make(chan struct{})
	for _, h := range g.held {
		g.done.Go(func() {
			tick := time.NewTicker(g.beatOf(h.at))
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					g.note(h.at.Beat(h.lock))
				case <-g.stop:
					return
				}
			}
		})
	}
}

// note remembers that a place is lost. That it could not be written to will
// be noticed by others.
func (g *Guard) note(err error) {
	var busy *BusyError
	if !errors.As(err, &busy) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost = err
}

// Err says that a place has gone to another run (*BusyError).
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
	for _, h := range g.held {
		err = errors.Join(err, h.at.Unlock(h.lock))
	}
	g.held = nil
	return err
}
