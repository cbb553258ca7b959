package gpustate

import (
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// Event is a command that was issued. It needs no release: its resources are freed
// when the queue learns that the command is complete. At a capture all events
// complete; they stay valid over restore and migration.
//
// In-order queues of CUDA, of NVIDIA's OpenCL and of servers only count most commands. There
// Wait and Done report the completion of all that was issued before the first call of either;
// see Follow.
type Event struct {
	from *tracker

	mu    sync.Mutex
	users int32 // calls that use h
	done  bool
	lazy  bool         // its command is one that a lazy queue only counts
	h     driver.Event // 0 when complete, or on a lazy queue that no call has asked
	seq   uint64       // of the commands that a lazy queue only counts the last that is complete with it
	rare  *rare
}

// rare has the fields that few events need: a program makes an event with each command.
type rare struct {
	err   error           // the command's own failure
	pin   *runtime.Pinner // memory of a transfer that does not block
	times *driver.Times
}

// more returns the rare fields for writing; mu is held.
func (e *Event) more() *rare {
	if e.rare == nil {
		e.rare = &rare{}
	}
	return e.rare
}

// finish marks the command complete; mu is held.
func (e *Event) finish(err error) {
	e.done = true
	if err != nil {
		e.more().err = err
	}
	if e.rare != nil && e.rare.pin != nil {
		e.rare.pin.Unpin()
		e.rare.pin = nil
	}
}

// failure returns the error of a command that is complete.
func (e *Event) failure() error {
	if e.rare == nil {
		return nil
	}
	return e.rare.err
}

// Wait returns when the command is complete, with the error it failed with. There is no limit of time.
func (e *Event) Wait() error {
	d := e.from.dev
	if err := d.enter(); err != nil {
		return e.closed(err)
	}
	defer d.leave()
	return e.wait()
}

// closed returns the result of an event whose device is closed: closing completed it.
func (e *Event) closed(err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done {
		return e.failure()
	}
	if e.past() {
		return nil
	}
	return err
}

// past reports whether the command of a lazy queue is known to be complete.
func (e *Event) past() bool { return e.lazy && e.seq <= e.from.complete.Load() }

// wait is Wait with the device entered.
func (e *Event) wait() error {
	h, ok := e.hold()
	if !ok {
		return e.failure()
	}
	err := e.from.dev.state.Session.WaitEvent(h)
	e.let(true, err)
	return err
}

// Done reports whether the command is complete, and the error it failed with. It does not wait.
func (e *Event) Done() (bool, error) {
	d := e.from.dev
	if err := d.enter(); err != nil {
		return true, e.closed(err)
	}
	defer d.leave()
	done, err := e.poll()
	if !done && err == nil { // a caller that polls must see it complete
		err = e.from.push()
	}
	return done, err
}

// poll is Done with the device entered.
func (e *Event) poll() (bool, error) {
	h, ok := e.hold()
	if !ok {
		return true, e.failure()
	}
	done, err := e.from.dev.state.Session.EventDone(h)
	e.let(done, err)
	return done, err
}

// Running reports whether the device works on the command now. Devices other than OpenCL's, and
// queues that only count the command, do not know: false.
func (e *Event) Running() bool {
	d := e.from.dev
	if e.lazy || d.enter() != nil {
		return false
	}
	defer d.leave()
	r, ok := d.state.Session.Device.(driver.Runner)
	if !ok {
		return false
	}
	h, unfinished := e.hold()
	if !unfinished {
		return false
	}
	defer e.let(false, nil)
	running, err := r.Running(h)
	return running && err == nil
}

// Times returns the moments of the command as durations since an origin of the device's clock; only their differences
// have a meaning. It waits for the command. It needs a queue made with Profiling: other commands match ErrUnsupported.
func (e *Event) Times() (queued, submit, start, end time.Duration, err error) {
	d := e.from.dev
	if err = d.enter(); err != nil {
		return
	}
	defer d.leave()
	if err = e.wait(); err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rare == nil || e.rare.times == nil {
		err = ErrUnsupported
		return
	}
	t := e.rare.times
	return t.Queued, t.Submit, t.Start, t.End, nil
}

// Follow makes Wait and Done report on this command alone, if it is called before the queue's next
// command is issued. It costs at most a marker.
func (e *Event) Follow() {
	d := e.from.dev
	if d.enter() != nil {
		return // closing the device completes the command
	}
	defer d.leave()
	if _, unfinished := e.hold(); unfinished {
		e.let(false, nil)
	}
}

// hold keeps the handle from being released; false if the command is complete.
func (e *Event) hold() (driver.Event, bool) {
	e.mu.Lock()
	asked := !e.done && e.h == 0
	if asked {
		e.mu.Unlock()
		e.from.alive.RLock() // before mu; the queue is not released while it is marked
		e.mu.Lock()
		if asked = !e.done && e.h == 0; asked {
			e.addMarker()
		}
		defer e.from.alive.RUnlock() // the queue is to know of the mark
	}
	h, unfinished := e.h, !e.done
	if unfinished {
		e.users++
	}
	e.mu.Unlock()
	if asked && unfinished {
		e.from.remember(e)
	}
	return h, unfinished
}

// addMarker gives the command of a lazy queue a handle: of a marker behind it, and behind the commands issued since.
func (e *Event) addMarker() {
	if e.past() {
		e.finish(nil)
		return
	}
	if e.from.freed { // it could not be waited for then
		e.finish(ErrReleased)
		return
	}
	h, err := e.from.dev.state.Session.Marker(e.from.e.Handle, nil)
	if err != nil {
		e.finish(err)
		return
	}
	e.h = h
}

// let ends hold. With done the command is known to be complete.
func (e *Event) let(done bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users--
	if done && !e.done {
		e.finish(err)
		if err == nil {
			e.from.reach(e.seq) // the queue is in order
		}
		if e.from.e.Record.Queue.Profiling && e.h != 0 {
			if t, err := e.from.dev.state.Session.EventTimes(e.h); err == nil {
				e.more().times = &t
			}
		}
	}
	if e.done && e.users == 0 && e.h != 0 {
		e.from.dev.state.Session.ReleaseEvent(e.h)
		e.h = 0
	}
}

// pinUntilDone holds the memory of a transfer until the command is complete.
func (e *Event) pinUntilDone(pin *runtime.Pinner) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done {
		pin.Unpin()
		return
	}
	e.more().pin = pin
}
