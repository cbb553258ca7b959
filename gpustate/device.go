package gpustate

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/chunkhash"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Device is an open device and the objects a program made on it.
type Device struct {
	// Lock order: lending, making, mu, Kernel.mu, Queue.mu, entry.use, Queue.alive, Event.mu.

	drv *session // guarded by mu

	// changes grows with whatever may make a kernel unfit for launches: the release of any object, also by
	// Close, and all that stops the device. While it is what it was when a kernel was found fit, the kernel
	// still is. It is never 0.
	changes atomic.Uint64

	// lending is held for reading while foreign code has handles, for writing by what stops the
	// device.
	lending    lending
	lent       atomic.Bool   // foreign code has had handles
	generation atomic.Uint64 // grows when handles become others

	// making serialises what changes the set of objects.
	making  sync.Mutex
	list    []*entry       // in order of creation, IDs ascending
	names   map[key]*entry // objects with a name
	made    map[key]uint64 // how many objects without a name the program has asked for
	nextID  uint64
	origin  uint64 // of records, see record.Record
	shadow  int64  // bound of captures' device memory, below 0 for none
	reserve int64  // what captures leave free
	spare   int    // restored objects without a name that nobody has taken yet
	filled  bool   // a Restore has written to memory
	pinned  map[*pin]struct{}

	keyOnce sync.Once
	key     *chunkhash.Key // of captures' hashes

	// shadows is taken after all others but Capture.mu.
	shadows  sync.Mutex
	captures map[*Capture]struct{} // that may have bytes on the device

	// mu is held for reading by every call that uses a handle, for writing
	// while handles change or the contents must stand still. Setting arguments
	// and launching, which programs do most, go without it: who holds it for
	// writing holds all kernels and queues too.
	mu     sync.RWMutex
	closed atomic.Bool
	lazy   bool // in-order queues do without an event for each command
	held   []sync.Locker

	gone   chan struct{} // closed when the device is lost
	lose   sync.Once
	info   atomic.Pointer[Info]   // of drv, for messages outside of mu
	opened atomic.Pointer[Select] // what the device was chosen by
}

// key is what a named object is found by, and what objects without a name are
// counted by. Kernels are named and counted within a program, ranges of a buffer are
// counted within it.
type key struct {
	kind   string
	parent uint64
	name   string
}

// entry is what all objects have in common.
type entry struct {
	dev      *Device
	h        driver.Handle // guarded by dev.mu
	obj      record.Object // a kernel's arguments are kept by the Kernel
	owner    any           // the *Buffer, *Kernel, ... around this entry
	released atomic.Bool   // set by end
	argument atomic.Bool   // it has been an argument of a kernel
	adopted  uintptr       // memory of other code; guarded by dev.making
	use      sync.RWMutex  // held for reading by transfers, before Event.mu

	// guarded by dev.making
	parent    *entry   // a sub-buffer's buffer, a kernel's program
	children  int      // live objects whose parent this is, and times it is lent to foreign code
	variables []*entry // of a program
	initial   []byte   // of a variable that captures hold only since the program asked for it
	claimed   bool     // handed out to the program
	kept      bool     // restored for its children's sake: the program had released it
	known     bool     // the last restore brought it its state
}

func newDevice(drv driver.Device) *Device {
	d := &Device{drv: newSession(drv), names: map[key]*entry{}, made: map[key]uint64{}, shadow: -1,
		reserve: reserve, captures: map[*Capture]struct{}{}, pinned: map[*pin]struct{}{}, gone: make(chan struct{})}
	d.changes.Store(1)
	for d.origin == 0 {
		d.origin = rand.Uint64()
	}
	d.show()
	return d
}

// Info describes the device as it is now; MigrateTo changes it.
func (d *Device) Info() Info { return *d.info.Load() }

// show publishes the Info of the driver's device.
func (d *Device) show() {
	i := d.drv.Info()
	d.info.Store(&i)
	d.lazy = i.Lazy
	if r, ok := d.drv.Device.(driver.Movable); ok {
		r.OnMove(d.moveAway)
	}
	if l, ok := d.drv.Device.(driver.Losable); ok {
		go d.watch(d.drv, l.Lost())
	}
}

// watch notices the loss of the driver's device, unless the program has left it by then.
func (d *Device) watch(drv *session, lost <-chan struct{}) {
	<-lost
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.drv == drv && !d.closed.Load() {
		d.lose.Do(func() { close(d.gone) }) // one that was lost may have been moved, and lost again
	}
}

// Closed reports whether Close has been called.
func (d *Device) Closed() bool { return d.closed.Load() }

// Lost returns a channel that is closed when the server of the device is lost: calls then fail
// with ErrDeviceLost. It stays open for a device without a server, and when the Device is closed.
func (d *Device) Lost() <-chan struct{} { return d.gone }

// Close waits for the commands that were issued and releases all objects; memory
// of HostMemory stays until it is freed. Calling it again does nothing.
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
	for i := len(d.list) - 1; i >= 0; i-- {
		e := d.list[i]
		errs = append(errs, release(d.drv, e.obj, e.h))
		if host, ok := e.owner.(*HostBuffer); ok {
			errs = append(errs, host.unmap())
		}
		e.end()
	}
	for p := range d.pinned {
		if p.own { // its memory stays until it is freed
			errs = append(errs, p.unlock())
			delete(d.pinned, p)
		}
	}
	d.list, d.names = nil, map[key]*entry{}
	return errors.Join(append(errs, d.drv.release())...)
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

// name is the object's name for messages.
func (e *entry) name() string {
	if e.obj.Name != "" {
		return e.obj.Name
	}
	return unnamed(&e.obj)
}

// fail makes an ObjectError about the entry, nil from nil.
func (e *entry) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &ObjectError{Op: op, Kind: e.obj.Kind(), Name: e.name(), Device: e.dev.Info(), Err: err}
}

// end makes calls find the object released; false if they did already.
func (e *entry) end() bool {
	was := e.released.Swap(true)
	e.dev.changes.Add(1) // after it: who does not see this may still use the object, and release waits for it
	return !was
}

// usable says whether the object can be used on device d.
func (e *entry) usable(d *Device) error {
	switch {
	case e.released.Load():
		return ErrReleased
	case e.dev != d:
		return ErrOtherDevice
	}
	return nil
}

// getOrMake hands out the object that o describes, or makes it. same decides
// whether an object that exists is what the caller asks for.
func (d *Device) getOrMake(o record.Object, parent *entry, same func(have *record.Object) error) (*entry, error) {
	d.making.Lock()
	defer d.making.Unlock()
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	if parent != nil && parent.released.Load() {
		return nil, parent.fail("use", ErrReleased)
	}
	if o.Name == "" {
		o.Ordinal = d.made[keyOf(&o)] + 1
	}
	fresh := wrap(d, o)
	if e := d.find(&o); e != nil {
		if err := same(&e.obj); err != nil {
			return nil, e.fail("open", err)
		}
		d.claim(e)
		return e, nil
	}
	if err := newTarget(d.drv.Device).check(&fresh.obj); err != nil {
		return nil, fresh.fail("create", err)
	}
	var h driver.Handle
	err := d.withRoom(func() (err error) {
		h, err = fresh.realize(d.drv, d.handleOf)
		return err
	})
	if err != nil {
		return nil, fresh.fail("create", err)
	}
	var variables []*entry
	if fresh.obj.Program != nil {
		if variables, err = fresh.findVariables(d.drv.Device, h); err != nil {
			return nil, fresh.fail("create", errors.Join(err, release(d.drv, fresh.obj, h)))
		}
	}
	fresh.h, fresh.claimed = h, true
	if k, ok := fresh.owner.(*Kernel); ok {
		k.resize() // before a capture sees it
	}
	d.add(fresh, parent)
	for _, v := range variables {
		d.addVariable(fresh, v)
	}
	return fresh, nil
}

// obtain is getOrMake that gives the object around the entry.
func obtain[T any](d *Device, o record.Object, parent *entry, same func(have *record.Object) error) (owner T,
	err error) {
	e, err := d.getOrMake(o, parent, same)
	if err == nil {
		owner = e.owner.(T)
	}
	return owner, err
}

// equal says whether what exists is what the caller asks for.
func equal(same bool) error {
	if !same {
		return ErrConflict
	}
	return nil
}

// claim marks an object as handed out; making is held.
func (d *Device) claim(e *entry) {
	if e.obj.Name == "" {
		d.made[e.key()] = e.obj.Ordinal
		if !e.claimed {
			d.spare--
		}
	}
	e.claimed, e.kept = true, false
}

// add enters a finished object; making is held.
func (d *Device) add(e *entry, parent *entry) {
	d.nextID++
	e.obj.ID = d.nextID
	e.parent = parent
	if parent != nil {
		parent.children++
	}
	d.list = append(d.list, e)
	switch have := d.names[e.key()]; {
	case e.obj.Name != "" && (have == nil || !have.claimed):
		d.names[e.key()] = e
	case e.obj.Name != "":
	case e.claimed:
		d.made[e.key()] = e.obj.Ordinal
	default:
		d.spare++
	}
}

// handleOf finds the handle of an object by its ID; making is held.
func (d *Device) handleOf(id uint64) driver.Handle {
	if e := d.byID(id); e != nil {
		return e.h
	}
	return nil
}

func (d *Device) byID(id uint64) *entry {
	if i, ok := d.place(id); ok {
		return d.list[i]
	}
	return nil
}

// place is where an ID stands in the list.
func (d *Device) place(id uint64) (int, bool) {
	return slices.BinarySearchFunc(d.list, id, func(e *entry, id uint64) int {
		return cmp.Compare(e.obj.ID, id)
	})
}

// drop releases an object. What others are made from stays until they are
// released too.
func (d *Device) drop(e *entry) error {
	if isVariable(&e.obj) {
		return e.fail("release", fmt.Errorf("it comes and goes with its program: %w", ErrUnsupported))
	}
	d.making.Lock()
	defer d.making.Unlock()
	if !e.end() {
		return nil
	}
	if err := d.enter(); err != nil {
		return nil // Close has released everything
	}
	defer d.leave()
	if d.names[e.key()] == e {
		delete(d.names, e.key())
	}
	return d.forget(e)
}

// forget takes an object that the program has released, and what it is made from,
// out of the device when nothing is made from it any more.
func (d *Device) forget(e *entry) error {
	if e.children > 0 || !e.released.Load() && !e.kept {
		return nil
	}
	if e.kept { // nobody has asked for it
		d.unlist(e)
	}
	err := d.forgetVariables(e)
	if i, ok := d.place(e.obj.ID); ok {
		d.list = slices.Delete(d.list, i, i+1)
	}
	d.resetCount(e)
	err = errors.Join(err, e.fail("release", e.release()))
	if e.parent != nil {
		e.parent.children--
		err = errors.Join(err, d.forget(e.parent))
	}
	return err
}

// release frees the driver's object when no call that is in progress uses it any more;
// new ones find that it is released. making is held.
func (e *entry) release() error {
	switch o := e.owner.(type) {
	case *Kernel:
		o.mu.Lock()
		defer o.mu.Unlock()
	case *Queue:
		return o.free()
	}
	if e.argument.Load() && len(e.dev.held) == 0 { // of a device that is stopped no call is in progress
		for _, other := range e.dev.list {
			if k, ok := other.owner.(*Kernel); ok {
				k.mu.Lock() // a launch that has looked at its arguments has passed them on
				//lint:ignore SA2001 nothing else is to be done
				k.mu.Unlock()
			}
		}
	}
	e.use.Lock()
	defer e.use.Unlock()
	return release(e.dev.drv, e.obj, e.h)
}
