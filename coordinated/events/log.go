package events

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// Options describe a Log: its place and its owner.
type Options struct {
	Dir    string    // the directory that has the runs; made when it is missing
	Header Header    // Part is filled in
	Rank   int       // whose log it is
	Begun  time.Time // when Open began; the zero of Event.Mono
	// MaxBytes bounds the log of this run, for a node the log of each of its ranks; 0 means 8 MiB.
	MaxBytes int64
	// Node makes the ranks of a node write to one file; nil: this one has files of its own.
	Node   *Node
	Logger *slog.Logger // for one line if the log cannot be written; nil discards

	fs vfs.FS
}

// defaultMaxBytes bounds a rank's log of one run: about three thousand checkpoints.
const defaultMaxBytes = 8 << 20

// queueLen is how many events may wait for a slow disk.
const queueLen = 4096

// Log is the event log of one rank in one run. A nil Log discards.
type Log struct {
	opt Options

	mu     sync.Mutex // guards the fields below
	queue  []Event
	lost   uint64
	closed bool
	taken  uint64 // events put into the queue
	put    uint64 // events written, or given up
	moved  chan struct{}

	wake   chan struct{}
	ending chan struct{} // closed by Close
	done   chan struct{}

	// The writer's own.
	out sink
	err error  // why the last lines were not written; nil: they were
	gap uint64 // lines that could not be written since
}

// sink is where a Log goes.
type sink interface {
	// open makes it ready, if it can be by now.
	open() error
	// write appends events of this rank and returns how many of them are written.
	write(batch []Event) (written int, err error)
	// close ends it, when all that was written is synced.
	close() error
}

// Create makes the files of a new run and starts the goroutine that writes them; with Options.Node only at the first
// rank of the node. Other ranks of the node connect to the first in the background. A full disk is no error: the Log
// drops lines until there is room. The caller closes the Log.
func Create(ctx context.Context, opt Options) (*Log, error) {
	if opt.fs == nil {
		opt.fs = vfs.OrOS(vfs.From(ctx))
	}
	opt.MaxBytes = cmp.Or(opt.MaxBytes, defaultMaxBytes)
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	opt.Header.Version = Version
	l := &Log{opt: opt, moved: make(chan struct{}), wake: make(chan struct{}, 1), ending: make(chan struct{}),
		done: make(chan struct{})}
	switch {
	case opt.Node == nil:
		l.out = newFile(opt, partName)
	case opt.Node.First == opt.Rank:
		l.out = newCollector(opt)
	default:
		l.out = &member{opt: opt, ending: l.ending}
	}
	if err := l.out.open(); err != nil {
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
			return nil, errors.Join(err, l.out.close())
		}
		l.fail(0, err)
	}
	go l.run()
	return l, nil
}

// Emit logs an event that happens now. It waits for no disk. If 4096 events wait already, it drops the event and counts
// it in Event.Lost of the next.
func (l *Log) Emit(e Event) { l.EmitAt(time.Now(), e) }

// EmitAt logs an event at t, which must be a time.Now of this process; see Emit.
func (l *Log) EmitAt(t time.Time, e Event) {
	if l == nil {
		return
	}
	e.Wall, e.Mono, e.Rank = t.UnixNano(), int64(max(t.Sub(l.opt.Begun), 0)), l.opt.Rank
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.queue) >= queueLen {
		l.lost++
		return
	}
	e.Lost, l.lost = l.lost, 0
	l.queue = append(l.queue, e)
	l.taken++
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Span logs the beginning of an event, and returns a function that logs its end: the event that it is given, with the
// name, the duration and the error's text. If that event has no epoch and level, they are those of the beginning.
func (l *Log) Span(e Event) (end func(Event, error)) {
	if l == nil {
		return func(Event, error) {}
	}
	start := time.Now()
	first := e
	first.Begin = true
	l.EmitAt(start, first)
	return func(last Event, err error) {
		now := time.Now()
		if err != nil {
			last.Text = err.Error()
		}
		last.Name, last.Dur = e.Name, int64(now.Sub(start))
		last.Epoch = cmp.Or(last.Epoch, e.Epoch)
		last.Level = cmp.Or(last.Level, e.Level)
		l.EmitAt(now, last)
	}
}

// Flush waits until everything that was logged before is in the file, or ctx
// ends.
func (l *Log) Flush(ctx context.Context) {
	if l == nil {
		return
	}
	l.mu.Lock()
	want := l.taken
	l.mu.Unlock()
	for {
		l.mu.Lock()
		ok, moved := l.put >= want, l.moved
		l.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

// Close writes the remaining events, syncs and closes the file. It waits for the disk. The error is that of the last
// lines, if they could not be written. It may be called again.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	if first {
		close(l.ending)
		close(l.wake)
	}
	<-l.done
	return l.err
}

// tryWrite writes a batch. A batch that cannot be written is a gap: the next line that can has its length.
func (l *Log) tryWrite(batch []Event) {
	if len(batch) == 0 {
		return
	}
	batch[0].Lost += l.gap
	n, err := l.out.write(batch)
	if n > 0 {
		l.gap = 0 // the first line has it
	}
	if err != nil {
		l.fail(uint64(len(batch)-n), err)
		return
	}
	if l.err != nil {
		l.opt.Logger.Info("holdfast: the event log can be written again; it says how many lines are missing")
	}
	l.err = nil
}

// fail notes the number of missing lines.
func (l *Log) fail(missing uint64, err error) {
	if l.err == nil {
		l.opt.Logger.Warn("holdfast: cannot write the event log; events are missing until a retry succeeds", "error",
			err)
	}
	l.err = err
	l.gap += missing
}

func (l *Log) run() {
	defer close(l.done)
	if m, ok := l.out.(*member); ok {
		// The first rank is there now: after a restart that is refused it leaves soon.
		if err := m.dial(); err != nil {
			m.opt.Logger.Debug("holdfast: the rank that writes this node's event log is not there", "error", err)
		}
	}
	open := true
	for open {
		_, open = <-l.wake
		l.mu.Lock()
		batch := l.queue
		l.queue = nil
		l.mu.Unlock()
		l.tryWrite(batch)
		l.mu.Lock()
		l.put += uint64(len(batch))
		close(l.moved)
		l.moved = make(chan struct{})
		l.mu.Unlock()
	}
	l.err = errors.Join(l.err, l.out.close())
}
