package gpustate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/drivers"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// ErrNotForeign reports that a pointer or handle was asked for outside of Device.Foreign, or after the call
// that lent it had returned.
var ErrNotForeign = errors.New("device handles are lent only while Device.Foreign runs")

// refuseForeign returns the error of a device whose handles mean nothing in this process: it belongs to a server.
func (d *Device) refuseForeign() error {
	return fmt.Errorf("handles of %s are valid only in its server's process: open a device of this machine (Select "+
		"without Remote), or do this work with kernels of this package: %w", d.Info(), ErrUnsupported)
}

// Foreign lends the handles of a device to code that this package does not know: cuBLAS,
// cuFFT, NCCL, cgo of the program. It is valid until the function that got it returns.
type Foreign struct {
	d      *Device
	lender driver.Lender

	mu   sync.Mutex // after Device.making
	over bool
	lent []*object.Entry
}

// Foreign calls do with the device's handles. Captures, restores, moves and Close wait until do returns. Commands that
// do enqueued need not be complete then: whatever stops the device waits for the queues that Queue.Native gave and,
// with CUDA, for all other streams of the context. Other OpenCL queues are waited for by do itself. Commands of this
// package that must come after the commands of do go to the same queue, or do waits for its commands.
//
// do runs on an OS thread of its own, on which a CUDA context is current; commands of this package for another device
// change that, until MakeCurrent. Calls of Foreign may be nested, for several devices each with its own context
// current. It may use all objects of the device; objects that it releases stay until do has returned. Adopt, Capture,
// Restore, MigrateTo and Close of the same device would wait for do. If do calls them, even within a Point that takes a
// checkpoint, they fail with an error that matches ErrInForeign. do must not wait for a goroutine that calls them or
// Foreign.
//
// Pointers and handles change when the device moves or is restored: ask for them in each call. When Generation has
// changed, make all objects of a context again, such as a cuBLAS handle or an NCCL communicator. A device of a server
// refuses with an error that matches ErrUnsupported. The call is local.
func (d *Device) Foreign(do func(f *Foreign) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d.lending.RLock()
	defer d.lending.RUnlock()
	if d.closed.Load() {
		return ErrClosed
	}
	lender, ok := d.state.Session.Device.(driver.Lender)
	if !ok {
		return d.refuseForeign()
	}
	if !d.lending.held() {
		d.lending.enter()
		defer d.lending.exit()
	}
	back, err := lender.MakeCurrent()
	if err != nil {
		return fmt.Errorf("lend handles of %s: %w", d.Info(), err)
	}
	defer back()
	d.lent.Store(true)
	f := &Foreign{d: d, lender: lender}
	defer f.end()
	return do(f)
}

// end takes back the lent handles; objects that the program has released meanwhile are freed now.
func (f *Foreign) end() {
	f.d.making.Lock()
	defer f.d.making.Unlock()
	f.mu.Lock()
	f.over = true
	lent := f.lent
	f.lent = nil
	f.mu.Unlock()
	for _, e := range lent {
		e.Children--
		_ = f.d.state.Forget(e, f.d.free) // the program's Release has returned: no caller is left
	}
}

// lend keeps an object until the end.
func (f *Foreign) lend(i item) error {
	e := i.e
	if f == nil {
		return e.Fail("lend", ErrNotForeign)
	}
	f.d.making.Lock()
	defer f.d.making.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return e.Fail("lend", ErrNotForeign)
	}
	if err := i.usable(f.d); err != nil {
		return e.Fail("lend", err)
	}
	if object.IsVariable(&e.Record) {
		e = f.d.state.ByID(e.Record.Mem.Parent) // it lives as long as its program
	}
	e.Children++
	f.lent = append(f.lent, e)
	return nil
}

// Generation grows whenever pointers and handles become others: with each move and restore of the
// device. It begins at 1.
func (f *Foreign) Generation() uint64 { return f.d.state.Generation.Load() + 1 }

// Pointer returns the memory of the buffer for foreign code: a CUdeviceptr, a cl_mem, on a fake device a
// host address. Outside of Foreign it is an error that matches ErrNotForeign.
func (b *Buffer) Pointer(f *Foreign) (uintptr, error) { return f.pointer(b.item) }

// Pointer is Buffer.Pointer; of SVM it is the address.
func (s *Shared) Pointer(f *Foreign) (uintptr, error) { return f.pointer(s.item) }

func (f *Foreign) pointer(i item) (uintptr, error) {
	if err := f.lend(i); err != nil {
		return 0, err
	}
	return f.lender.NativeMem(i.e.Handle), nil
}

// MakeCurrent makes the device's CUDA context current on this OS thread again, after commands for another device. It
// must be called by the goroutine of do. For other APIs it does nothing.
func (f *Foreign) MakeCurrent() error {
	_, err := f.lender.MakeCurrent()
	return err
}

// MakeRoom is for foreign code that finds too little device memory. It copies the bytes that captures still have on the
// device to the host and frees their memory, as this package does when an allocation of its own fails. It reports
// whether that freed anything; then try again. It takes as long as a copy of those bytes.
func (f *Foreign) MakeRoom() bool {
	freed := false
	for f.d.state.Evict() {
		freed = true
	}
	return freed
}

// Native returns the queue for foreign code: a CUstream or a cl_command_queue. Commands that are enqueued there come
// after the queue's present commands and before its later ones. The queue's window does not count them. Outside of
// Foreign it is an error that matches ErrNotForeign.
func (q *Queue) Native(f *Foreign) (uintptr, error) {
	if err := f.lend(q.item); err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.commands.used = true
	return f.lender.NativeQueue(q.e.Handle), nil
}

// Native is a device for foreign code.
type Native struct {
	Kind    string  // "cuda", "opencl" or "fake"
	Context uintptr // CUcontext, the device's primary one, or cl_context
	Device  uintptr // CUdevice or cl_device_id
	// Generation is the generation of the Foreign.
	Generation uint64
}

// Native returns the device for foreign code. Outside of Foreign it is an error that matches
// ErrNotForeign.
func (d *Device) Native(f *Foreign) (Native, error) {
	if f == nil {
		return Native{}, fmt.Errorf("lend %s: %w", d.Info(), ErrNotForeign)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.over:
		return Native{}, fmt.Errorf("lend %s: %w", d.Info(), ErrNotForeign)
	case f.d != d:
		return Native{}, fmt.Errorf("lend %s: %w", d.Info(), ErrOtherDevice)
	}
	n := Native{Kind: d.Info().Kind, Generation: f.Generation()}
	n.Context, n.Device = f.lender.NativeContext()
	return n, nil
}

// ErrAdopted reports that an object of other code cannot move with the device.
var ErrAdopted = object.ErrAdopted

// Adopt makes a buffer of memory that other code has allocated on this device, so that captures hold its bytes. pointer
// is a CUdeviceptr whose bytes all lie in one allocation of this device, or a cl_mem of the context that Native
// returns. The memory stays the other code's: Release only forgets it, and it must live until then.
//
// After a restart the program adopts its new memory under the same name, before or after the restore. It finds the
// bytes of the checkpoint there (Restored reports that). While a device has adopted memory, MigrateTo fails with
// ErrAdopted. Adopting the same memory under the same name again gives the same buffer; another object of that name is
// an error that matches ErrConflict.
//
// Write to the memory within Foreign, or with commands of this package: captures wait for both.
// The call waits for all commands of the device. A device of a server refuses
// with an error that matches ErrUnsupported.
func (d *Device) Adopt(name string, pointer uintptr, bytes int) (*Buffer, error) {
	want := record.Object{Name: name, Mem: &record.Mem{Kind: driver.MemBuffer, Bytes: int64(bytes)}}
	fresh := object.NewEntry(&d.state.Table, want)
	if name == "" {
		return nil, fresh.Fail("adopt", fmt.Errorf("it has no name: %w: give it one", ErrIdentity))
	}
	if bytes <= 0 || pointer == 0 {
		return nil, fresh.Fail("adopt", fmt.Errorf("%d bytes at %#x: %w", bytes, pointer, ErrRange))
	}
	lender, err := d.adopting()
	if err != nil {
		return nil, err
	}
	defer d.start()
	have := d.state.Names[fresh.Key()]
	switch {
	case have != nil && have.Record.Mem.Bytes != int64(bytes):
		return nil, have.Fail("adopt", object.OtherSize(have.Record.Mem.Bytes, int64(bytes)))
	case have != nil && have.Adopted == pointer:
		return own(d, have, newBuffer), nil
	case have != nil && have.Claimed:
		return nil, have.Fail("adopt", ErrConflict)
	}
	h, err := lender.Adopt(pointer, int64(bytes))
	if err != nil {
		return nil, fresh.Fail("adopt", err)
	}
	if have == nil {
		fresh.Handle, fresh.Adopted, fresh.Claimed = h, pointer, true
		d.state.Add(fresh, nil)
		return own(d, fresh, newBuffer), nil
	}
	if err := d.state.Replace(have, h); err != nil {
		return nil, have.Fail("adopt", err)
	}
	have.Adopted = pointer
	d.state.Claim(have)
	return own(d, have, newBuffer), nil
}

// adopting stops the device; the caller starts it unless there is an error.
func (d *Device) adopting() (driver.Lender, error) {
	if err := d.stop(context.Background()); err != nil {
		return nil, err
	}
	lender, ok := d.state.Session.Device.(driver.Lender)
	if !ok {
		d.start()
		return nil, d.refuseForeign()
	}
	return lender, nil
}

// AdoptQueue makes a queue of one that other code has made on this device. native is a CUstream of the device's
// context, CU_STREAM_LEGACY but no other predefined stream, or a cl_command_queue of the context that Native returns.
// Commands of this package and of that code then come one after the other on it, and captures wait for all of them. The
// queue stays the other code's: Release waits for its commands and forgets it, and it must live until then.
//
// After a restart the program adopts the queue it then has under the same name, before or after the restore. While a
// device has adopted a queue, MigrateTo fails with ErrAdopted. Adopting the same queue under the same name again gives
// the same Queue; another object of that name, or another name for the queue, is an error that matches ErrConflict. The
// queue has DefaultWindow, which does not count commands of other code.
//
// Enqueue on it within Foreign, or with commands of this package. The call waits for all commands
// of the device. A device of a server refuses with an error that matches ErrUnsupported.
func (d *Device) AdoptQueue(name string, native uintptr) (*Queue, error) {
	opt := QueueOptions{}.record()
	fresh := object.NewEntry(&d.state.Table, record.Object{Name: name, Queue: &opt})
	if name == "" {
		return nil, fresh.Fail("adopt", fmt.Errorf("it has no name: %w: give it one", ErrIdentity))
	}
	lender, err := d.adopting()
	if err != nil {
		return nil, err
	}
	defer d.start()
	have := d.state.Names[fresh.Key()]
	for _, e := range d.state.List {
		if e.Record.Queue == nil || lender.NativeQueue(e.Handle) != native {
			continue
		}
		if e != have || e.Adopted == 0 {
			return nil, fresh.Fail("adopt", fmt.Errorf("it is the queue %q: %w", e.Name(), ErrConflict))
		}
		return own(d, e, newQueue), nil
	}
	if have != nil && have.Claimed {
		return nil, have.Fail("adopt", ErrConflict)
	}
	h, desc, err := lender.AdoptQueue(native)
	if err != nil {
		return nil, fresh.Fail("adopt", err)
	}
	opt.OutOfOrder, opt.Profiling, opt.Priority = desc.OutOfOrder, desc.Profiling, desc.Priority
	fresh.Record.Queue = &opt
	switch {
	case have == nil:
		fresh.Handle, fresh.Adopted, fresh.Claimed = h, native, true
		d.state.Add(fresh, nil)
		return own(d, fresh, newQueue), nil
	case *have.Record.Queue != opt:
		err := fmt.Errorf("in the checkpoint it is %+v, now %+v: %w", *have.Record.Queue, opt, ErrConflict)
		return nil, errors.Join(have.Fail("adopt", err), d.state.Session.ReleaseQueue(h))
	}
	err = d.state.Session.ReleaseQueue(have.Handle) // its commands are complete: the device is stopped
	have.Handle, have.Adopted = h, native
	d.state.Claim(have)
	return own(d, have, newQueue), have.Fail("adopt", err)
}

// AdoptContext opens a device in a context that other code has made, instead of one of its own: n.Kind, n.Context and,
// for OpenCL, n.Device say which. Objects of this package and of that code then share it, and pointers and queues of
// either are valid for the other. The context stays the other code's and must live until Close. A capture does not
// depend on the kind of context: each kind restores captures of the other, and MigrateTo leaves the foreign context for
// one of this package. Captures wait for all streams of a CUDA context, of OpenCL for the queues of this package and
// those adopted.
//
// Programs that use the CUDA runtime, cuBLAS and the like have the primary context, which Open also uses. They need no
// AdoptContext. Errors match ErrRange for a null context, ErrUnsupported for a kind without contexts.
func AdoptContext(n Native) (*Device, error) {
	for _, l := range drivers.All {
		opener, ok := l.(driver.ContextOpener)
		if !ok || l.Kind() != n.Kind {
			continue
		}
		if n.Context == 0 {
			return nil, fmt.Errorf("adopt a context of kind %q: it is null: %w", n.Kind, ErrRange)
		}
		drv, err := opener.OpenContext(n.Context, n.Device)
		if err != nil {
			return nil, fmt.Errorf("adopt a context of kind %q: %w", n.Kind, err)
		}
		d := newDevice(drv)
		d.lent.Store(true) // other code works in it
		return d, nil
	}
	return nil, fmt.Errorf("adopt a context of kind %q: want \"cuda\" or \"opencl\": %w", n.Kind, ErrUnsupported)
}
