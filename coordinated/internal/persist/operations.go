package persist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/storage"
)

// HungError reports that a level has accepted no bytes for its write timeout, or until the time for a final checkpoint
// was over, although its file system has not failed: a disk or a server does not answer. The operation is abandoned.
type HungError struct {
	What    string // such as "write"
	Level   string
	Waited  time.Duration
	Skipped bool // it was not tried, since earlier operations still hang
}

// Error names the operation, the level, and how long nothing has moved.
func (e *HungError) Error() string {
	if e.Skipped {
		return fmt.Sprintf("%s at level %s: skipped, because earlier operations there still hang; check the disk or "+
			"the file server", e.What, e.Level)
	}
	return fmt.Sprintf("%s at level %s: no progress for %v; check the disk or the file server, or raise "+
		"write_timeout if they are that slow",
		e.What, e.Level, e.Waited.Round(time.Millisecond))
}

// lateGrace is how long an operation whose time is over may take to notice.
const lateGrace = time.Second

// Operations are the work at levels that is done in the background.
type Operations struct {
	timeout time.Duration
	copied  func(level string) int64
	taken   sync.Map     // *atomic.Int64 by level: bytes of captured sections that were read for it
	hung    sync.Map     // *atomic.Int64 by level: operations there that were given up
	running atomic.Int64 // operations that have not returned
}

// NewOperations abandons operations that do not move for timeout; copied returns the bytes that have been copied to a
// level.
func NewOperations(timeout time.Duration, copied func(level string) int64) *Operations {
	return &Operations{timeout: timeout, copied: copied}
}

// runWatched is watch for a function that returns a value.
func runWatched[T any](ctx context.Context, o *Operations, what, level string, l *capture.Lease,
	f func(ctx context.Context) (T, error)) (v T, err error) {
	result := new(T) // owned by f until it has ended
	ended, err := o.watch(ctx, what, level, l, func(ctx context.Context) (err error) {
		*result, err = f(ctx)
		return err
	})
	if ended {
		v = *result
	}
	return v, err
}

// watch runs f, which works at a level in the background, and abandons it when nothing has moved for the timeout, or
// when ctx is over and f does not end. f then runs on, with a ctx that is over; the memory of l, if there is one, stays
// until f has returned. f must obey a recall of that memory: there is no hurry then, and ctx may end later.
func (o *Operations) watch(ctx context.Context, what, level string, l *capture.Lease,
	f func(ctx context.Context) error) (ended bool, err error) {
	inner, cancel := context.WithCancelCause(ctx)
	hung := at(&o.hung, level)
	if hung.Load() >= mostHung {
		cancel(nil)
		return false, &HungError{What: what, Level: level, Skipped: true}
	}
	result, over := make(chan error, 1), make(chan struct{})
	o.running.Add(1)
	go func() {
		defer o.running.Add(-1)
		defer close(over)
		result <- f(inner)
	}()
	limit := o.timeout
	tick := time.NewTicker(max(limit/20, time.Millisecond))
	defer tick.Stop()
	moved, last := o.moved(level), time.Now()
	finish := ctx.Done()
	for {
		select {
		case err := <-result:
			cancel(nil)
			return true, err
		case <-finish:
			finish = nil
			last, limit = time.Now(), min(limit, lateGrace)
			tick.Reset(max(limit/20, time.Millisecond))
		case <-tick.C:
			if n := o.moved(level); n != moved && limit == o.timeout {
				moved, last = n, time.Now()
			}
			if waited := time.Since(last); waited >= limit {
				err := &HungError{What: what, Level: level, Waited: waited}
				cancel(err)
				if l != nil {
					l.HeldBy(over)
				}
				hung.Add(1)
				go func() { <-over; hung.Add(-1) }()
				return false, errors.Join(err, context.Cause(ctx))
			}
		}
	}
}

// mostHung is how many operations may hang at a level before no more are tried there until
// one has returned: each holds memory and a writer.
const mostHung = 2

func at(m *sync.Map, level string) *atomic.Int64 {
	n, _ := m.LoadOrStore(level, new(atomic.Int64))
	return n.(*atomic.Int64)
}

// Run is watch for work without memory.
func (o *Operations) Run(ctx context.Context, what, level string, f func(ctx context.Context) error) error {
	_, err := o.watch(ctx, what, level, nil, f)
	return err
}

// End runs f, which ends something, and leaves it to itself after the timeout; at
// once where an operation hangs already, for which it would wait.
func (o *Operations) End(log *slog.Logger, what string, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	limit := o.timeout
	if o.running.Load() > 0 {
		limit = min(limit, lateGrace)
	}
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		log.Error("holdfast: no longer waiting", "for", what, "waited", limit)
		return nil
	}
}

// moved grows with every byte that is read from captured memory for a level or copied to it. Bytes for other levels do
// not count: epochs on the node's disk would hide that the file server does not answer.
func (o *Operations) moved(level string) int64 {
	return at(&o.taken, level).Load() + o.copied(level)
}

// counted are captured sections whose reads count for a level.
func (o *Operations) counted(level string, secs []storage.Section) []storage.Section {
	out := slices.Clone(secs)
	for i := range out {
		out[i].Source = counted{out[i].Source, at(&o.taken, level)}
	}
	return out
}

// counted counts the bytes read from a section, so that a slow level can be told from one that hangs.
type counted struct {
	io.ReaderAt
	n *atomic.Int64
}

func (s counted) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.ReaderAt.ReadAt(p, off)
	s.n.Add(int64(n))
	return n, err
}

func (s counted) UnchangedSince(e storage.Epoch, digest [16]byte) func(chunk int) bool {
	if c, ok := s.ReaderAt.(storage.Comparer); ok {
		return c.UnchangedSince(e, digest)
	}
	return nil
}

func (s counted) Slice(off int64, n int) []byte {
	sl, ok := s.ReaderAt.(storage.Slicer)
	if !ok {
		return nil
	}
	b := sl.Slice(off, n)
	s.n.Add(int64(len(b)))
	return b
}
