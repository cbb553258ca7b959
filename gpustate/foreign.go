package gpustate

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
)

// ErrNotForeign says that a pointer or handle was asked for outside of Device.Foreign, or after the call
// that lent it had returned.
var ErrNotForeign = errors.New("device handles are lent only while Device.Foreign runs")

// ForeignError is a device whose handles mean nothing in this process: it belongs to a server. It
// matches ErrUnsupported.
type ForeignError struct{ Device Info }

// Error names the device and the remedy.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("handles of %s are valid only in its server's process: open a device of this machine "+
		"(Select without Remote), or do this work with kernels of this package", e.Device)
}

// Is makes a ForeignError match ErrUnsupported.
func (e *ForeignError) Is(target error) bool { return target == ErrUnsupported }

// Foreign lends the handles of a device to code that this package does not know: cuBLAS,
// cuFFT, NCCL, cgo of the program. It is valid until the function that got it returns.
type Foreign struct {
	d      *Device
	lender driver.Lender

	mu   sync.Mutex // after Device.making
	over bool
	lent []*object.Entry
}

// Foreign calls do with the device's handles. Captures, restores, moves and Close wait until do
// returns. Commands that do enqueued need not be complete then: whatever stops the device waits for
// the queues that Queue.Native gave and, with CUDA, for all other streams of the context. Other
// OpenCL queues are waited for by do itself. Commands of this package that must come after those
// of do go to the same queue, or do waits for its commands.
//
// do runs on an OS thread of its own, on which a CUDA context is current; commands of this package
// for another device change that, until MakeCurrent. Calls of Foreign may be nested, for several
// devices each with its own context current. It may use all objects
// of the device; what it releases stays until do has returned. Adopt, Capture, Restore, MigrateTo
// and Close of the same device would wait for do: where do calls them they fail with an error that
// matches ErrInForeign, also within a Point that takes a checkpoint. do must not wait for another
// goroutine that calls them, nor for one that calls Foreign.
//
// Pointers and handles change when the device moves or is restored: ask for them in each call, and
// make what depends on a context (a cuBLAS handle, an NCCL communicator) again when Generation has
// changed. A device of a server refuses with a *ForeignError. The call is local.
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
		return &ForeignError{Device: d.Info()}
	}
	if !d.lending.held() {
		d.lending.mark()
		defer d.lending.unmark()
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

// end takes back what was lent; what the program has released meanwhile goes now.
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
		_ = f.d.state.Forget(e, f.d.free) // the program's Release has returned: nobody is left to tell
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

// Pointer is the memory of the buffer for foreign code: a CUdeviceptr, a cl_mem, on a fake device a
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

// MakeCurrent makes the CUDA context of the device that of this OS thread again, after commands for
// another device. It must be called by the goroutine of do.
func (f *Foreign) MakeCurrent() error {
	_, err := f.lender.MakeCurrent()
	return err
}

// MakeRoom is for foreign code that finds too little device memory: it brings the bytes that
// captures still have on the device to the host and frees their memory, as this package does when
// an allocation of its own fails. It reports whether that freed anything; then try again. It takes
// as long as a copy of those bytes.
func (f *Foreign) MakeRoom() bool {
	freed := false
	for f.d.state.Evict() {
		freed = true
	}
	return freed
}

// Native is the queue for foreign code: a CUstream or a cl_command_queue. What is enqueued there
// comes after the commands that the queue has, and before those that it gets later; the queue's
// window does not count it. Outside of Foreign it is an error that matches ErrNotForeign.
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
	// Generation is that of the Foreign.
	Generation uint64
}

// Native is the device for foreign code. Outside of Foreign it is an error that matches
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
