package gpustate

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Queue takes commands for the device. Commands of an in-order queue run one
// after the other; those of different queues at the same time if the device
// can.
type Queue struct {
	item
	mu sync.Mutex // guards the fields of commands without a lock of their own

	commands tracker
}

func newQueue(i item) *Queue {
	return &Queue{item: i, commands: tracker{item: i, window: i.e.Record.Queue.Window}}
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
	// Profiling makes Event.Times report when commands ran.
	Profiling bool
	// Window bounds the number of commands that are not complete: a command
	// beyond it waits for the oldest ones. It bounds how long a capture or a
	// migration waits. 0 is DefaultWindow, below 0 is no bound.
	Window int
}

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

// Queue gives the queue of this name, whatever its options, or makes an in-order one with DefaultWindow.
func (d *Device) Queue(name string) (*Queue, error) {
	opt := QueueOptions{}.record()
	return obtain(d, record.Object{Name: name, Queue: &opt}, nil, newQueue,
		func(*record.Object) error { return nil })
}

// QueueWith gives the queue of this name, or makes it with these options. One
// that exists with others is an error that matches ErrConflict.
func (d *Device) QueueWith(name string, opt QueueOptions) (*Queue, error) {
	want := opt.record()
	return obtain(d, record.Object{Name: name, Queue: &want}, nil, newQueue,
		func(have *record.Object) error { return equal(*have.Queue == want) })
}

// Name returns the queue's name, empty if it has none.
func (q *Queue) Name() string { return q.e.Record.Name }

// Release waits for the queue's commands and gives it back. If one of them failed, it returns that error and releases
// nothing: call it again.
func (q *Queue) Release() error {
	if err := q.Finish(); err != nil {
		return err
	}
	return q.dev.drop(q.e)
}

// free completes the commands and releases the driver's queue.
func (q *Queue) free() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &q.commands
	err := t.drain()
	t.alive.Lock() // no call waits for one of its commands meanwhile
	defer t.alive.Unlock()
	t.retireAsked() // the commands marked since
	t.freed = true
	return errors.Join(err, q.e.Discard(q.dev.state.Session, q.e.Handle))
}

// begin enters the device and takes the queue for one command; end gives both
// back.
func (q *Queue) begin() error {
	if err := q.dev.enter(); err != nil {
		return err
	}
	q.mu.Lock()
	if q.e.Released.Load() {
		q.end()
		return q.fail("use", ErrReleased)
	}
	return nil
}

func (q *Queue) end() {
	q.mu.Unlock()
	q.dev.leave()
}

// Flush hands all commands to the device. It does not wait for them. Event.Wait, Event.Done and Finish do so by
// themselves.
func (q *Queue) Flush() error {
	if err := q.begin(); err != nil {
		return err
	}
	defer q.end()
	return q.fail("flush", q.dev.state.Session.Flush(q.e.Handle))
}

// Finish waits until all commands are complete, without a limit of time. It returns the error of the first one that
// failed since the last Finish.
func (q *Queue) Finish() error {
	if err := q.begin(); err != nil {
		return err
	}
	defer q.end()
	err := q.commands.drain()
	if err == nil {
		err, q.commands.failed = q.commands.failed, nil
	}
	return q.fail("finish", err)
}

// issue runs one command of the driver and gives its event; a command that
// blocks is complete. do gets the events of after that are not complete.
func (q *Queue) issue(block bool, after []*Event, do func(wait []driver.Event) (driver.Event, error)) (*Event, error) {
	q.commands.room()
	var buf [8]driver.Event
	wait := buf[:0]
	var held []*Event
	for _, e := range after {
		if e.from.dev != q.dev {
			letAll(held)
			return nil, fmt.Errorf("wait for a command of %s: %w", e.from.dev.Info(), ErrOtherDevice)
		}
		h, ok := e.hold()
		if !ok {
			if err := e.failure(); err != nil {
				letAll(held)
				return nil, fmt.Errorf("a command that it waits for failed: %w", err)
			}
			continue
		}
		wait, held = append(wait, h), append(held, e)
		if e.from != &q.commands { // a command that its queue keeps back would never complete
			if err := e.from.push(); err != nil {
				letAll(held)
				return nil, err
			}
		}
	}
	h, err := do(wait)
	for err != nil && errors.Is(err, ErrOutOfMemory) && q.dev.state.Evict() { // some drivers find memory late
		h, err = do(wait)
	}
	letAll(held)
	if err != nil {
		return nil, err
	}
	return q.commands.enter(block, h)
}

func letAll(held []*Event) {
	for _, e := range held {
		e.let(false, nil)
	}
}

// Marker gives an event that completes after those in after, or, without any, after all commands issued before it.
// Events of another Device match ErrOtherDevice.
func (q *Queue) Marker(after ...*Event) (*Event, error) { return q.wait("mark", after, q.marker) }

// Barrier is a Marker for which later commands of the queue wait. Between commands of an in-order queue it changes
// nothing. Errors are those of Marker.
func (q *Queue) Barrier(after ...*Event) (*Event, error) {
	return q.wait("order", after, func(wait []driver.Event) (driver.Event, error) {
		return q.dev.state.Session.Barrier(q.e.Handle, wait)
	})
}

// wait issues a command that only waits.
func (q *Queue) wait(op string, after []*Event, do func(wait []driver.Event) (driver.Event, error)) (*Event, error) {
	if err := q.begin(); err != nil {
		return nil, err
	}
	defer q.end()
	ev, err := q.issue(false, after, do)
	return ev, q.fail(op, err)
}

func (q *Queue) marker(wait []driver.Event) (driver.Event, error) {
	return q.dev.state.Session.Marker(q.e.Handle, wait)
}

// Launch runs a kernel over an index space and returns when the launch is issued. global has one to three extents in
// work items. local has as many extents of a work-group, each a divisor of the global one; with nil the device chooses.
// Both slices are free when Launch returns. The arguments are those the kernel has now; they may be set again as soon
// as Launch returns. The kernel starts after the commands in after.
//
// The call waits if the queue's window is full. Errors match ErrRange for extents that do not fit, ErrArgNotSet,
// ErrReleased, and ErrOtherDevice. A kernel that fails while it runs is reported by the event and by Finish.
func (q *Queue) Launch(k *Kernel, global, local []int, after ...*Event) (e *Event, err error) {
	// A driver's launch leaves little of this code, and of its data, in the processor's caches. So rare cases are in
	// other functions: a kernel is checked only when something may have changed since it was found fit, and a queue
	// only at the command of number due.
	var g driver.Grid
	if !fill(&g, global, local) {
		return nil, k.fail("launch", misfit(global, local))
	}
	k.k.Mu.Lock()
	q.mu.Lock()
	d, t := q.dev, &q.commands
	if k.k.Fit == d.state.Changes.Load() && k.dev == d && t.issued+1 < t.due && len(after) == 0 {
		var h driver.Event
		if h, err = d.state.Session.Launch(q.e.Handle, k.e.Handle, g, nil); err == nil && h == 0 {
			k.k.Ran(&g)
			t.issued++
			e = t.event()
			e.seq, e.lazy = t.issued, true
		} else {
			e, err = q.launched(k, &g, h, err)
		}
	} else {
		e, err = q.launchChecked(k, &g, after)
	}
	q.mu.Unlock()
	k.k.Mu.Unlock()
	return e, err
}

// LaunchAt is Launch with the index space beginning at offset, in work items, which has as many extents as global. CUDA
// devices take only offset 0: others match ErrUnsupported.
func (q *Queue) LaunchAt(k *Kernel, offset, global, local []int, after ...*Event) (*Event, error) {
	var g driver.Grid
	if !fill(&g, global, local) {
		return nil, k.fail("launch", misfit(global, local))
	}
	if len(offset) != len(global) {
		return nil, k.fail("launch", fmt.Errorf("got %d offsets for %d extents: %w", len(offset), len(global),
			ErrRange))
	}
	copy(g.Offset[:], offset)
	k.k.Mu.Lock()
	defer k.k.Mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.launchChecked(k, &g, after)
}

// fill makes the index space of a launch, which is empty before. It is false when the extents do not fit:
// misfit has the reason.
func fill(g *driver.Grid, global, local []int) bool {
	if len(global) < 1 || len(global) > 3 || local != nil && len(local) != len(global) {
		return false
	}
	g.Dims, g.Global = len(global), [3]int{1, 1, 1}
	for i, n := range global {
		if n <= 0 {
			return false
		}
		g.Global[i] = n
	}
	if local == nil {
		return true
	}
	g.Local = [3]int{1, 1, 1}
	for i, n := range local {
		if n <= 0 || n > 1 && g.Global[i]%n != 0 {
			return false
		}
		g.Local[i] = n
	}
	return true
}

// misfit names the fault of extents that fill refuses.
func misfit(global, local []int) error {
	if len(global) < 1 || len(global) > 3 || local != nil && len(local) != len(global) {
		return fmt.Errorf("got %d global and %d local extents, want 1 to 3 of each, or no local ones: %w", len(global),
			len(local),
			ErrRange)
	}
	if i := slices.IndexFunc(global, func(n int) bool { return n <= 0 }); i >= 0 {
		return fmt.Errorf("global extent %d: %w", global[i], ErrRange)
	}
	for i, n := range local {
		if n <= 0 || global[i]%n != 0 {
			return fmt.Errorf("work-groups of %d do not divide %d: %w", n, global[i], ErrRange)
		}
	}
	return ErrRange
}

// launchChecked launches after all checks; kernel and queue are locked.
func (q *Queue) launchChecked(k *Kernel, g *driver.Grid, after []*Event) (*Event, error) {
	now := q.dev.state.Changes.Load() // the next launch sees changes during the checks
	if k.dev.closed.Load() {
		return nil, ErrClosed
	}
	if q.e.Released.Load() {
		return nil, q.fail("launch on", ErrReleased)
	}
	err := k.usable(q.dev)
	if err == nil {
		err = k.k.Ready()
	}
	if err != nil {
		return nil, k.fail("launch", err)
	}
	k.k.Fit = now
	if len(after) > 0 {
		e, err := q.issue(false, after, func(wait []driver.Event) (driver.Event, error) {
			return q.dev.state.Session.Launch(q.e.Handle, k.e.Handle, *g, wait)
		})
		if err == nil {
			k.k.Ran(g)
		}
		return e, k.fail("launch", err)
	}
	q.commands.room()
	h, err := q.dev.state.Session.Launch(q.e.Handle, k.e.Handle, *g, nil)
	return q.launched(k, g, h, err)
}

// launched handles the driver's result of a launch.
//
//go:noinline
func (q *Queue) launched(k *Kernel, g *driver.Grid, h driver.Event, err error) (*Event, error) {
	for err != nil && errors.Is(err, ErrOutOfMemory) && q.dev.state.Evict() { // some drivers find memory late
		h, err = q.dev.state.Session.Launch(q.e.Handle, k.e.Handle, *g, nil)
	}
	if err != nil {
		return nil, k.fail("launch", err)
	}
	k.k.Ran(g)
	return q.commands.enter(false, h)
}
