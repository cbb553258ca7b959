package gpustate

import (
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
)

// DefaultWindow is the window of queues that do not choose one. Programs of long kernels notice no window; one of
// kernels of 4 us on an H200 notices those of 20 and below. See docs/PERFORMANCE.md. While commands are complete within
// a few milliseconds, an in-order queue with this window may have up to 256 in flight. To follow them takes as long as
// a launch or two each time.
const DefaultWindow = 50

// tracker follows the commands of a queue until they are known to be complete. Its
// methods are called with Queue.mu held, or with the device stopped, unless they say
// otherwise.
type tracker struct {
	item // the queue's

	// Of a lazy queue commands are counted instead of kept. The one of number due is the next that needs
	// more than that: a marker, or room in the window. 0: whatever comes next does, as after drain, with
	// which the release of the queue begins and all that stops the device.
	issued   uint64
	due      uint64
	events   []Event // for the next commands
	complete atomic.Uint64
	markers  []marker // of a window, oldest first

	window int
	wider  int // more than window while commands are short, otherwise 0

	flight []*Event // not known to be complete, oldest first
	failed error    // of the first command that failed since Finish
	used   bool     // a command was given to it

	alive sync.RWMutex // held for reading by commands of other queues that use h
	freed bool         // h is released; guarded by alive

	askedMu sync.Mutex // taken before an event's
	asked   []*Event   // that have a handle because a caller asked for them, oldest first
}

// marker is one behind a number of commands.
type marker struct {
	seq    uint64
	ev     driver.Event
	issued time.Time
}

// A lazy queue of DefaultWindow widens it, up to widest, while markers are complete within
// shortLag of their issue: each one takes the driver as long as a launch or two. Beyond longLag it
// has DefaultWindow again.
const (
	widest   = 256
	shortLag = time.Millisecond
	longLag  = 4 * time.Millisecond
)

// width returns how many commands of a lazy queue may be in flight.
func (t *tracker) width() int { return max(t.window, t.wider) }

// lagged takes in how long after its issue a marker was found complete, which is never shorter than the commands before
// it took.
func (t *tracker) lagged(lag time.Duration) {
	switch {
	case t.window != DefaultWindow:
	case lag > longLag:
		t.wider = 0
	case lag <= shortLag:
		t.wider = min(2*t.width(), widest)
	}
}

// drain waits for all commands; mu is held, or the device is locked.
func (t *tracker) drain() error {
	t.due = 0
	if err := t.dev.state.Session.Finish(t.e.Handle); err != nil {
		// the commands' own errors say more than the queue's
		t.retireAll()
		if t.failed == nil && errors.As(err, new(*driver.CommandError)) && !errors.Is(err, ErrDeviceLost) {
			t.failed = err // the queue itself is well
		}
		if t.failed == nil {
			return err
		}
	}
	t.retireAll()
	for _, m := range t.markers {
		t.dev.state.Session.ReleaseEvent(m.ev)
	}
	t.markers = nil
	t.complete.Store(t.issued)
	return nil
}

// reach notes that the commands that are only counted are complete up to a number. Anybody may call it.
func (t *tracker) reach(seq uint64) {
	for have := t.complete.Load(); have < seq && !t.complete.CompareAndSwap(have, seq); {
		have = t.complete.Load()
	}
}

// push hands the commands to the device for a call that waits for one of them. A
// queue that is released has only complete ones.
func (t *tracker) push() error {
	t.alive.RLock()
	defer t.alive.RUnlock()
	if t.freed {
		return nil
	}
	return t.dev.state.Session.Flush(t.e.Handle)
}

// retire waits for the n oldest commands and lets their events go.
func (t *tracker) retire(n int) {
	for _, e := range t.flight[:n] {
		if err := e.wait(); err != nil && t.failed == nil {
			t.failed = err
		}
	}
	clear(t.flight[:n])
	t.flight = t.flight[n:]
	if len(t.flight) == 0 {
		t.flight = nil
	}
}

// retireAll lets the events of all commands go. None keeps a handle: the next one
// may be on another device.
func (t *tracker) retireAll() {
	t.retire(len(t.flight))
	t.retireAsked()
}

// retireAsked waits for the commands that callers asked for.
func (t *tracker) retireAsked() {
	t.askedMu.Lock()
	defer t.askedMu.Unlock()
	for _, e := range t.asked {
		_ = e.wait() // the queue has reported the results of its commands
	}
	t.asked = nil
}

// remember keeps an event that got its handle after its command was issued, so
// that the queue can give it back although no call waits for the event.
func (t *tracker) remember(e *Event) {
	t.askedMu.Lock()
	defer t.askedMu.Unlock()
	t.asked = append(t.asked, e)
	if len(t.asked)%sweepEvery == 0 {
		n := slices.IndexFunc(t.asked, func(e *Event) bool { done, _ := e.poll(); return !done })
		if n < 0 {
			n = len(t.asked)
		}
		t.asked = slices.Delete(t.asked, 0, n)
	}
}

// room makes place for one more command in the window; mu is held.
func (t *tracker) room() {
	if t.window == 0 {
		return
	}
	for len(t.flight) >= t.window {
		t.retire(1)
	}
	for len(t.markers) > 0 && t.issued-t.complete.Load() >= uint64(t.width()) {
		m := t.markers[0]
		t.markers = t.markers[1:]
		if err := t.dev.state.Session.WaitEvent(m.ev); err != nil && t.failed == nil {
			t.failed = err
		}
		t.dev.state.Session.ReleaseEvent(m.ev)
		t.reach(m.seq)
		t.lagged(time.Since(m.issued))
	}
}

// count enters a command of a lazy queue. With a window some commands get a
// marker, so that waiting for the oldest leaves others in flight.
func (t *tracker) count() (seq uint64, err error) {
	t.issued++
	t.due = math.MaxUint64
	if t.window == 0 {
		return t.issued, nil
	}
	if t.issued >= t.nextMarker() {
		ev, err := t.dev.state.Session.Marker(t.e.Handle, nil)
		if err != nil {
			t.due = 0
			return t.issued, err
		}
		t.markers = append(t.markers, marker{t.issued, ev, time.Now()})
	}
	t.due = min(t.nextMarker(), t.complete.Load()+uint64(t.width())+1)
	if len(t.flight) > 0 {
		t.due = 0
	}
	return t.issued, nil
}

// nextMarker returns the number of the command that is to have the next marker.
func (t *tracker) nextMarker() uint64 {
	last := t.complete.Load()
	if n := len(t.markers); n > 0 {
		last = max(last, t.markers[n-1].seq)
	}
	return last + uint64(max(t.width()/2, 1))
}

// eventBlock is how many events are made at once: as many as fill 4 KiB as Go allocates them.
const eventBlock = 85

// event gives a new event; mu is held.
func (t *tracker) event() *Event {
	if len(t.events) == 0 {
		t.makeEvents()
	}
	n := len(t.events) - 1
	e := &t.events[n]
	t.events = t.events[:n]
	return e
}

//go:noinline
func (t *tracker) makeEvents() {
	t.events = make([]Event, eventBlock)
	for i := range t.events {
		t.events[i].from = t
	}
}

// watch makes sure that the completion of the command is noticed although
// the queue is lazy: it holds memory. mu is held.
func (t *tracker) watch(e *Event) {
	if !e.lazy {
		return // it is tracked already
	}
	if _, unfinished := e.hold(); unfinished {
		e.let(false, nil)
		t.track(e)
	} else if err := e.failure(); err != nil && t.failed == nil {
		t.failed = err
	}
}

// sweepEvery is after how many commands a queue looks for events that it can
// let go.
const sweepEvery = 64

// track enters an issued command; mu is held.
func (t *tracker) track(e *Event) *Event {
	t.flight, t.due = append(t.flight, e), 0
	if len(t.flight)%sweepEvery == 0 {
		n := 0
		for n < len(t.flight) {
			if done, err := t.flight[n].poll(); !done {
				break
			} else if err != nil && t.failed == nil {
				t.failed = err
			}
			n++
		}
		clear(t.flight[:n])
		t.flight = t.flight[n:]
	}
	return e
}

// enter gives an issued command its event; mu is held.
func (t *tracker) enter(block bool, h driver.Event) (*Event, error) {
	t.used = true
	ev := t.event()
	if h != 0 {
		ev.h, ev.seq = h, t.issued
		return t.track(ev), nil
	}
	if block || !t.dev.lazy || !object.CanBeLazy(t.e.Record.Queue) {
		ev.done = true
		return ev, nil
	}
	var err error
	ev.seq, err = t.count()
	ev.lazy = true
	return ev, err
}
