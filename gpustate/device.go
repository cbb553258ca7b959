package gpustate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
	"golang.org/x/sys/unix"
)

// Device is an open device and the objects a program made on it. All calls of a Device and of its objects are local,
// and several goroutines may make them.
type Device struct {
	// Lock order: lending, making, mu, object.Kernel.Mu, Queue.mu, object.Entry.Use, Queue.alive, Event.mu.

	// lending is held for reading while foreign code has handles, for writing by what stops the
	// device.
	lending lending
	lent    atomic.Bool // foreign code has had handles

	// making serialises changes of the set of objects.
	making sync.Mutex
	state  checkpoint.State // its table is guarded by making, its driver by mu
	pinned map[*checkpoint.Pin]struct{}

	// mu is held for reading by every call that uses a handle, for writing
	// while handles change or the contents must stand still. Setting arguments
	// and launching, which programs do most, go without it: a call that holds it for
	// writing holds all kernels and queues too.
	mu     sync.RWMutex
	closed atomic.Bool
	lazy   bool // in-order queues do without an event for each command
	held   []sync.Locker

	lost   chan struct{} // closed when the device is lost
	lose   sync.Once
	opened atomic.Pointer[Select] // the selection of the device
}

func newDevice(drv driver.Device) *Device {
	d := &Device{pinned: map[*checkpoint.Pin]struct{}{}, lost: make(chan struct{})}
	d.state.Init(drv)
	d.show()
	return d
}

// lending is the lock that is held for reading while foreign code has handles, for writing by what stops
// the device. It knows the threads of foreign code, on which it is held already: a second RLock there would
// wait for a writer that waits for the first.
type lending struct {
	sync.RWMutex
	mu      sync.Mutex       // taken after all other locks
	threads map[int]struct{} // those that functions of Foreign run on, by their ID
}

// held reports whether the calling goroutine is one that Foreign runs: it alone is on that thread.
func (l *lending) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.threads) == 0 {
		return false
	}
	_, ok := l.threads[unix.Gettid()]
	return ok
}

// enter begins a function of Foreign on this thread, to which its goroutine is locked; exit ends it.
func (l *lending) enter() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.threads == nil {
		l.threads = map[int]struct{}{}
	}
	l.threads[unix.Gettid()] = struct{}{}
}

func (l *lending) exit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.threads, unix.Gettid())
}

// RLock and RUnlock do nothing where the lock is held by a function of Foreign that goes on after them.
func (l *lending) RLock() {
	if !l.held() {
		l.RWMutex.RLock()
	}
}

// RUnlock is the end of RLock, on the same goroutine.
func (l *lending) RUnlock() {
	if !l.held() {
		l.RWMutex.RUnlock()
	}
}

// Info describes the device as it is now; MigrateTo changes it. It asks no driver.
func (d *Device) Info() Info { return d.state.Info() }

// show publishes the Info of the driver's device.
func (d *Device) show() {
	i := d.state.Session.Info()
	d.state.Show(i)
	d.lazy = i.Lazy
	if r, ok := d.state.Session.Device.(driver.Movable); ok {
		r.OnMove(d.moveAway)
	}
	if l, ok := d.state.Session.Device.(driver.Losable); ok {
		go d.watch(d.state.Session, l.Lost())
	}
}

// watch notices the loss of the driver's device, unless the program has left it by then.
func (d *Device) watch(drv *checkpoint.Session, lost <-chan struct{}) {
	<-lost
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.state.Session == drv && !d.closed.Load() {
		d.lose.Do(func() { close(d.lost) }) // one that was lost may have been moved, and lost again
	}
}

// Closed reports whether Close has been called.
func (d *Device) Closed() bool { return d.closed.Load() }

// Lost returns a channel that is closed when the server of the device is lost: calls then fail
// with ErrDeviceLost. It stays open for a device without a server, and when the Device is closed.
func (d *Device) Lost() <-chan struct{} { return d.lost }

// Close waits for the commands that were issued, without a limit of time, and releases all objects. Memory of
// HostMemory stays until it is freed. Within Foreign of this device it fails with ErrInForeign. Calling it again does
// nothing.
func (d *Device) Close() error {
	if d.lending.held() {
		return fmt.Errorf("close %s: %w", d.Info(), ErrInForeign)
	}
	d.lending.Lock()
	defer d.lending.Unlock()
	d.making.Lock()
	defer d.making.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return nil
	}
	d.holdAll()
	defer d.letAll()
	d.closed.Store(true)
	errs := []error{d.finishQueues()}
	for i := len(d.state.List) - 1; i >= 0; i-- {
		e := d.state.List[i]
		errs = append(errs, e.Discard(d.state.Session, e.Handle), e.Unmap())
		e.End()
	}
	for p := range d.pinned {
		if p.Own { // its memory stays until it is freed
			errs = append(errs, p.Unlock())
			delete(d.pinned, p)
		}
	}
	d.state.Clear()
	return errors.Join(append(errs, d.state.Session.Release())...)
}

// enter begins a call that uses handles; leave ends it.
func (d *Device) enter() error {
	d.mu.RLock()
	if d.closed.Load() {
		d.mu.RUnlock()
		return ErrClosed
	}
	return nil
}

func (d *Device) leave() { d.mu.RUnlock() }

// item is an object of the program's: an entry and its device.
type item struct {
	dev *Device
	e   *object.Entry
}

func (i item) fail(op string, err error) error { return i.e.Fail(op, err) }

func (i item) usable(d *Device) error { return i.e.Usable(&d.state.Table) }

// own returns the program's object around an entry, which wrap makes once; making is held.
func own[T any](d *Device, e *object.Entry, wrap func(item) T) T {
	if e.Public == nil {
		e.Public = wrap(item{d, e})
	}
	return e.Public.(T)
}

// obtain returns the program's object that o describes, or makes it. same decides whether an existing object is the one
// that the caller asks for.
func obtain[T any](d *Device, o record.Object, parent *object.Entry, wrap func(item) T,
	same func(have *record.Object) error) (t T, err error) {
	d.making.Lock()
	defer d.making.Unlock()
	if err := d.enter(); err != nil {
		return t, err
	}
	defer d.leave()
	e, err := d.getOrMake(o, parent, same)
	if err != nil {
		return t, err
	}
	return own(d, e, wrap), nil
}

// getOrMake returns the entry of the object that o describes, or makes it; making is held.
func (d *Device) getOrMake(o record.Object, parent *object.Entry, same func(have *record.Object) error) (*object.Entry,
	error) {
	if parent != nil && parent.Released.Load() {
		return nil, parent.Fail("use", ErrReleased)
	}
	if o.Name == "" {
		o.Ordinal = d.state.Made[object.KeyOf(&o)] + 1
	}
	fresh := object.NewEntry(&d.state.Table, o)
	if e := d.state.Find(&o); e != nil {
		if err := same(&e.Record); err != nil {
			return nil, e.Fail("open", err)
		}
		d.state.Claim(e)
		return e, nil
	}
	if err := object.Check(d.state.Session.Device, &fresh.Record); err != nil {
		return nil, fresh.Fail("create", err)
	}
	var h, from driver.Handle
	if parent != nil {
		from = parent.Handle
	}
	err := d.state.WithRoom(func() (err error) {
		h, err = fresh.Realize(d.state.Session, from)
		return err
	})
	if err != nil {
		return nil, fresh.Fail("create", err)
	}
	var variables []*object.Entry
	if fresh.Record.Program != nil {
		if variables, err = fresh.FindVariables(d.state.Session.Device, h); err != nil {
			return nil, fresh.Fail("create", errors.Join(err, fresh.Discard(d.state.Session, h)))
		}
	}
	fresh.Handle, fresh.Claimed = h, true
	if fresh.Kernel != nil {
		fresh.Kernel.Resize(d.state.Session) // before a capture sees it
	}
	d.state.Add(fresh, parent)
	for _, v := range variables {
		d.state.AddVariable(fresh, v)
	}
	return fresh, nil
}

// equal reports whether the existing object is the one that the caller asks for.
func equal(same bool) error {
	if !same {
		return ErrConflict
	}
	return nil
}

// drop releases an object. An object stays until all objects made from it are released.
func (d *Device) drop(e *object.Entry) error {
	if object.IsVariable(&e.Record) {
		return e.Fail("release", fmt.Errorf("it comes and goes with its program: %w", ErrUnsupported))
	}
	d.making.Lock()
	defer d.making.Unlock()
	if !e.End() {
		return nil
	}
	if err := d.enter(); err != nil {
		return nil // Close has released everything
	}
	defer d.leave()
	d.state.Unname(e)
	return d.state.Forget(e, d.free)
}

// free releases the driver's object when no call that is in progress uses it any more. making is held.
func (d *Device) free(e *object.Entry) error {
	if q, ok := e.Public.(*Queue); ok {
		return q.free()
	}
	return errors.Join(e.Free(d.state.Session), e.Unmap())
}

// stop waits for foreign code, for the calls in progress and for all commands, and keeps new calls
// out until start. When ctx ends first nothing is held; the device then starts
// again by itself as soon as the commands are complete.
func (d *Device) stop(ctx context.Context) error {
	if d.lending.held() {
		return fmt.Errorf("stop %s: %w", d.Info(), ErrInForeign)
	}
	stopped := make(chan error, 1)
	go func() {
		d.lending.Lock()
		d.making.Lock()
		d.mu.Lock()
		if d.closed.Load() {
			stopped <- ErrClosed
			return
		}
		d.holdAll()
		stopped <- d.finishQueues()
	}()
	select {
	case err := <-stopped:
		if err != nil {
			d.start()
		}
		return err
	case <-ctx.Done():
		go func() {
			<-stopped
			d.start()
		}()
		return context.Cause(ctx)
	}
}

func (d *Device) start() {
	d.state.Changes.Add(1)
	d.letAll()
	d.mu.Unlock()
	d.making.Unlock()
	d.lending.Unlock()
}

// holdAll waits for the calls that go without mu and keeps new ones out; making
// and mu are held.
func (d *Device) holdAll() {
	for _, e := range d.state.List {
		if k := e.Kernel; k != nil {
			d.held = append(d.held, &k.Mu)
		}
	}
	for _, e := range d.state.List {
		if q, ok := e.Public.(*Queue); ok {
			d.held = append(d.held, &q.mu)
		}
	}
	for _, l := range d.held {
		l.Lock()
	}
}

func (d *Device) letAll() {
	for _, l := range d.held {
		l.Unlock()
	}
	d.held = nil
}

// finishQueues completes all commands of the program; the device is locked. A
// command that failed is reported to the program by its own event and by
// Finish, not here. Commands that foreign code enqueued on other queues are waited for if the API can.
func (d *Device) finishQueues() error {
	var errs []error
	if l, ok := d.state.Session.Device.(driver.Lender); ok && d.lent.Load() {
		if err := l.Synchronize(); err != nil {
			errs = append(errs, fmt.Errorf("wait for foreign commands on %s: %w", d.Info(), err))
		}
	}
	for _, e := range d.state.List {
		if q, ok := e.Public.(*Queue); ok {
			errs = append(errs, e.Fail("finish", q.commands.drain()))
		}
	}
	return errors.Join(errs...)
}
