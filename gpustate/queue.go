package gpustate

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Queue takes commands for the device. Commands of an in-order queue run one
// after the other; those of different queues at the same time if the device
// can.
type Queue struct {
	*entry
	window int

	mu     sync.Mutex
	flight []*Event // not known to be complete, oldest first
	failed error    // of the first command that failed since Finish
	used   bool     // a command was given to it
	events []Event  // room for the next ones

	// Of a lazy queue commands are counted instead of kept.
	issued   uint64
	complete atomic.Uint64
	marks    []mark // of a window, oldest first

	alive sync.RWMutex // held for reading by commands of other queues that use h
	gone  bool         // h is released; guarded by alive

	askedMu sync.Mutex // taken before an event's
	asked   []*Event   // that have a handle because somebody asked for them, oldest first
}

// mark is a marker behind a number of commands.
type mark struct {
	seq uint64
	ev  driver.Event
}

// QueueOptions say how a queue works. The zero value is an in-order queue with
// the default window.
type QueueOptions struct {
	// OutOfOrder lets commands overtake each other where the device can; order
	// is then given by the events they wait for.
	OutOfOrder bool
	// Priority below 0 goes before other queues, above 0 after them, where the
	// device knows priorities.
	Priority int
	// Profiling lets Event.Times tell when commands ran.
	Profiling bool
	// Window bounds the number of commands that are not complete: a command
	// beyond it waits for the oldest ones. It bounds how long a capture or a
	// migration waits. 0 is DefaultWindow, below 0 is no bound.
	Window int
}

// DefaultWindow is the window of queues that do not choose one. Programs of long
// kernels notice no window; one of kernels of 4 us on an H200 notices those of
// 20 and below. See docs/PERFORMANCE.md.
const DefaultWindow = 50

// record resolves the window: in a record 0 is none.
func (o QueueOptions) record() record.Queue {
	w := o.Window
	switch {
	case w == 0:
		w = DefaultWindow
	case w < 0:
		w = 0
	}
	return record.Queue{OutOfOrder: o.OutOfOrder, Profiling: o.Profiling, Priority: o.Priority, Window: w}
}

// Queue gives the queue of this name, or makes an in-order one.
func (d *Device) Queue(name string) (*Queue, error) {
	opt := QueueOptions{}.record()
	return d.queue(record.Object{Name: name, Queue: &opt},
		func(*record.Object) error { return nil })
}

// QueueWith gives the queue of this name, or makes it with these options. One
// that exists with others is an error that matches ErrConflict.
func (d *Device) QueueWith(name string, opt QueueOptions) (*Queue, error) {
	want := opt.record()
	return d.queue(record.Object{Name: name, Queue: &want}, func(have *record.Object) error {
		if *have.Queue != want {
			return ErrConflict
		}
		return nil
	})
}

func (d *Device) queue(o record.Object, same func(*record.Object) error) (*Queue, error) {
	e, err := d.getOrMake(o, nil, same)
	if err != nil {
		return nil, err
	}
	return e.owner.(*Queue), nil
}

// Name is the queue's name, empty if it has none.
func (q *Queue) Name() string { return q.obj.Name }

// Release gives the queue back after its commands are complete.
func (q *Queue) Release() error {
	if err := q.Finish(); err != nil {
		return err
	}
	return q.dev.drop(q.entry)
}

// free completes the commands and releases the driver's queue.
func (q *Queue) free() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.settle()
	q.alive.Lock()
	defer q.alive.Unlock()
	q.retireAsked() // what was marked since
	q.gone = true
	return errors.Join(err, release(q.dev.drv, q.obj, q.h))
}

// push hands the commands to the device for somebody who waits for one of them. A
// queue that is released has none that are not complete.
func (q *Queue) push() error {
	q.alive.RLock()
	defer q.alive.RUnlock()
	if q.gone {
		return nil
	}
	return q.dev.drv.Flush(q.h)
}

// begin enters the device and takes the queue for one command; end gives both
// back.
func (q *Queue) begin() error {
	if err := q.dev.enter(); err != nil {
		return err
	}
	q.mu.Lock()
	if q.released.Load() {
		q.end()
		return q.fail("use", ErrReleased)
	}
	return nil
}

func (q *Queue) end() {
	q.mu.Unlock()
	q.dev.leave()
}

// Flush hands all commands to the device. It does not wait for them.
func (q *Queue) Flush() error {
	if err := q.begin(); err != nil {
		return err
	}
	defer q.end()
	return q.fail("flush", q.dev.drv.Flush(q.h))
}

// Finish waits until all commands are complete. It returns the error of the
// first one that failed since the last Finish.
func (q *Queue) Finish() error {
	if err := q.begin(); err != nil {
		return err
	}
	defer q.end()
	err := q.settle()
	if err == nil {
		err, q.failed = q.failed, nil
	}
	return q.fail("finish", err)
}

// settle waits for all commands; mu is held, or the device is locked.
func (q *Queue) settle() error {
	if err := q.dev.drv.Finish(q.h); err != nil {
		// the commands' own errors say more than the queue's
		q.retireAll()
		var command *driver.CommandError
		if q.failed == nil && errors.As(err, &command) && !errors.Is(err, ErrDeviceLost) {
			q.failed = err // the queue itself is well
		}
		if q.failed == nil {
			return err
		}
	}
	q.retireAll()
	for _, m := range q.marks {
		q.dev.drv.ReleaseEvent(m.ev)
	}
	q.marks = nil
	q.complete.Store(q.issued)
	return nil
}

// retire waits for the n oldest commands and lets their events go.
func (q *Queue) retire(n int) {
	for _, e := range q.flight[:n] {
		if err := e.wait(); err != nil && q.failed == nil {
			q.failed = err
		}
	}
	clear(q.flight[:n])
	q.flight = q.flight[n:]
	if len(q.flight) == 0 {
		q.flight = nil
	}
}

// retireAll lets the events of all commands go. None keeps a handle: the next one
// may be on another device.
func (q *Queue) retireAll() {
	q.retire(len(q.flight))
	q.retireAsked()
}

// retireAsked waits for the commands that somebody asked for.
func (q *Queue) retireAsked() {
	q.askedMu.Lock()
	defer q.askedMu.Unlock()
	for _, e := range q.asked {
		_ = e.wait() // the queue has told how its commands went
	}
	q.asked = nil
}

// remember keeps an event that got its handle after its command was issued, so
// that the queue can give it back although nobody waits for the event.
func (q *Queue) remember(e *Event) {
	q.askedMu.Lock()
	defer q.askedMu.Unlock()
	q.asked = append(q.asked, e)
	if len(q.asked)%sweepEvery == 0 {
		n := slices.IndexFunc(q.asked, func(e *Event) bool { done, _ := e.poll(); return !done })
		if n < 0 {
			n = len(q.asked)
		}
		q.asked = slices.Delete(q.asked, 0, n)
	}
}

// room makes place for one more command in the window; mu is held.
func (q *Queue) room() {
	if q.window == 0 {
		return
	}
	for len(q.flight) >= q.window {
		q.retire(1)
	}
	for len(q.marks) > 0 && q.issued-q.complete.Load() >= uint64(q.window) {
		m := q.marks[0]
		q.marks = q.marks[1:]
		if err := q.dev.drv.WaitEvent(m.ev); err != nil && q.failed == nil {
			q.failed = err
		}
		q.dev.drv.ReleaseEvent(m.ev)
		q.complete.Store(m.seq)
	}
}

// count enters a command of a lazy queue. With a window some commands get a
// marker, so that waiting for the oldest leaves others in flight.
func (q *Queue) count() (seq uint64, err error) {
	q.issued++
	if q.window == 0 {
		return q.issued, nil
	}
	last := q.complete.Load()
	if n := len(q.marks); n > 0 {
		last = q.marks[n-1].seq
	}
	if q.issued-last < uint64(max(q.window/2, 1)) {
		return q.issued, nil
	}
	ev, err := q.dev.drv.Marker(q.h, nil)
	if err == nil {
		q.marks = append(q.marks, mark{q.issued, ev})
	}
	return q.issued, err
}

// event gives a new event; mu is held. Events are made by the dozen.
func (q *Queue) event() *Event {
	const dozen = 32
	if len(q.events) == 0 {
		q.events = make([]Event, dozen)
	}
	e := &q.events[0]
	q.events = q.events[1:]
	e.q = q
	return e
}

// watch makes sure that somebody learns when the command is complete although
// the queue is lazy: it holds memory. mu is held.
func (q *Queue) watch(e *Event) {
	if e.seq == 0 {
		return // it is tracked already
	}
	if _, unfinished := e.hold(); unfinished {
		e.let(false, nil)
		q.track(e)
	} else if err := e.failure(); err != nil && q.failed == nil {
		q.failed = err
	}
}

// sweepEvery is after how many commands a queue looks for events that it can
// let go.
const sweepEvery = 64

// track enters an issued command; mu is held.
func (q *Queue) track(e *Event) *Event {
	q.flight = append(q.flight, e)
	if len(q.flight)%sweepEvery == 0 {
		n := 0
		for n < len(q.flight) {
			if done, err := q.flight[n].poll(); !done {
				break
			} else if err != nil && q.failed == nil {
				q.failed = err
			}
			n++
		}
		clear(q.flight[:n])
		q.flight = q.flight[n:]
	}
	return e
}

// issue runs one command of the driver and gives its event; a command that
// blocks is complete. do gets the events of after that are not complete.
func (q *Queue) issue(block bool, after []*Event, do func(wait []driver.Event) (driver.Event, error)) (*Event, error) {
	q.room()
	var buf [8]driver.Event
	wait := buf[:0]
	var held []*Event
	for _, e := range after {
		if e.q.dev != q.dev {
			letAll(held)
			return nil, fmt.Errorf("wait for a command of %s: %w", e.q.dev.Info(), ErrOtherDevice)
		}
		h, ok := e.hold()
		if !ok {
			if err := e.failure(); err != nil {
				letAll(held)
				return nil, fmt.Errorf("a command it waits for failed: %w", err)
			}
			continue
		}
		wait, held = append(wait, h), append(held, e)
		if e.q != q { // a command that its queue keeps back would never complete
			if err := e.q.push(); err != nil {
				letAll(held)
				return nil, err
			}
		}
	}
	h, err := do(wait)
	if err != nil && errors.Is(err, ErrOutOfMemory) && q.dev.evict() { // some drivers find memory late
		h, err = do(wait)
	}
	letAll(held)
	if err != nil {
		return nil, err
	}
	return q.enter(block, h)
}

// enter gives an issued command its event; mu is held.
func (q *Queue) enter(block bool, h driver.Event) (*Event, error) {
	q.used = true
	ev := q.event()
	if h != 0 {
		ev.h = h
		return q.track(ev), nil
	}
	if block || !q.dev.lazy || !canBeLazy(q.obj.Queue) {
		ev.done = true
		return ev, nil
	}
	var err error
	ev.seq, err = q.count()
	return ev, err
}

func letAll(held []*Event) {
	for _, e := range held {
		e.let(false, nil)
	}
}
