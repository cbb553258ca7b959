package mpiwrap

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// ErrEpochOpen means that a window has an epoch open at a checkpoint, if none may
// be: accesses after the last Fence, or a lock that is held.
var ErrEpochOpen = errors.New("window has an open epoch; close it with Fence, Unlock or UnlockAll before the " +
	"checkpoint")

// Win is memory of every rank of a communicator that the others read and write
// one-sidedly. Accesses happen inside an epoch: between two calls of Fence, which
// is collective, or while the target is locked. Slices given to an access belong to
// the library until the epoch ends or is flushed.
//
// No epoch may be open at a checkpoint, which is refused with ErrEpochOpen. The memory belongs to MPI; a Win marshals
// its contents, so it can be protected as it is. A window that was freed before the checkpoint is recorded as freed. A
// restarted program allocates it before Restore and may then only free it: everything else returns ErrFreed. Finalize
// frees the windows that are left.
//
// The calls of Win are local, except for Fence and Free. Offsets (at) and lengths are elements.
type Win[T Scalar] struct {
	w   window
	mem []T
}

// window is the part that does not depend on the element type.
type window struct {
	c       *Comm
	h       driver.Handle
	mem     []byte
	unit    int
	name    string
	dirty   bool                    // accesses since the last fence, outside of locks
	locks   map[int]bool            // targets locked; all of them when allLocks
	all     bool                    // LockAll
	pinned  map[int]*runtime.Pinner // buffers of accesses under way, by target
	freed   bool
	ended   bool // it was freed before the checkpoint that was restored
	bytes   int  // of the caller's part
	typ     driver.Type
	perRank []int // elements on each rank
}

// WinAllocate makes a window with n elements on the caller. It is collective over c; n may differ between ranks. n may
// be 0. The memory is zeroed. A negative n is an error that matches ErrLength.
func WinAllocate[T Scalar](c *Comm, n int) (*Win[T], error) {
	if n < 0 {
		return nil, c.badLength(call.WinAllocate, "%d elements", n)
	}
	w := &Win[T]{w: window{c: c, unit: sizeOf[T](), typ: typeOf[T](), locks: map[int]bool{},
		pinned: map[int]*runtime.Pinner{}, bytes: n * sizeOf[T]()}}
	if err := w.w.allocate(n); err != nil {
		return nil, err
	}
	if n > 0 {
		w.mem = unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(w.w.mem))), n)
	}
	return w, nil
}

func (w *window) allocate(n int) error {
	c := w.c
	if err := c.channel().Usable(call.WinAllocate.String()); err != nil {
		return err
	}
	a, err := c.enter(call.WinAllocate)
	if err != nil {
		return err
	}
	defer a.Leave()
	if w.h, w.mem, err = c.st.Driver.WinAllocate(n*w.unit, w.unit, c.ch.Handle); err != nil {
		return c.ch.Wrap(call.WinAllocate.String(), NoPeer, NoTag, err)
	}
	clear(w.mem)
	mine, all := []int64{int64(n)}, make([]int64, c.size)
	err = c.st.Driver.Collective(driver.Coll{Kind: driver.Allgather, Type: driver.Int64, Count: 1,
		Send: bytesOf(mine), Recv: bytesOf(all), Comm: c.ch.Handle})
	if err != nil {
		return c.ch.Wrap(call.WinAllocate.String(), NoPeer, NoTag, err)
	}
	for _, k := range all {
		w.perRank = append(w.perRank, int(k))
	}
	c.windows++
	w.name = fmt.Sprintf("%s.win%d", c.ch.Name, c.windows)
	c.st.Lock()
	c.st.windows = append(c.st.windows, w)
	c.st.Unlock()
	return nil
}

// Memory returns the caller's part of the window. It may be read and written
// directly when no other rank accesses it: between Fence and Barrier, or under
// a lock of the caller's own rank.
func (w *Win[T]) Memory() []T { return w.mem }

// Free releases the window and its memory. It is collective over the window's communicator. An open epoch is an error
// that matches ErrEpochOpen.
func (w *Win[T]) Free() error {
	s := &w.w
	if err := s.usable("WinFree"); err != nil {
		return err
	}
	if err := s.closed(); err != nil {
		return err
	}
	a, err := s.c.enter(call.WinFree)
	if err != nil {
		return err
	}
	defer a.Leave()
	s.freed, w.mem, s.mem = true, nil, nil
	s.c.st.Lock()
	s.c.st.windows = slices.DeleteFunc(slices.Clone(s.c.st.windows), func(o *window) bool { return o == s })
	s.c.st.Unlock()
	return s.wrap(call.WinFree, NoPeer, s.c.st.Driver.WinFree(s.h))
}

func (w *window) usable(name string) error {
	if w.freed {
		return w.refuse(name, NoPeer, ErrFreed, "")
	}
	if w.ended && name != call.WinFree.String() {
		return w.refuse(name, NoPeer, ErrFreed, "the program had freed it before the checkpoint; call Free again")
	}
	return w.c.channel().Usable(name)
}

func (w *window) wrap(op call.Op, target int, err error) error {
	if err == nil {
		return nil
	}
	e := w.c.ch.Wrap(op.String(), target, NoTag, err)
	if m, ok := errors.AsType[*Error](e); ok {
		m.Comm = w.name
	}
	return e
}

// closed returns an error that names the epoch that is open, if one is.
func (w *window) closed() error {
	what := ""
	switch {
	case w.dirty:
		what = "accesses since the last Fence"
	case w.all:
		what = "LockAll is held"
	case len(w.locks) > 0:
		for r := range w.locks {
			what = fmt.Sprintf("rank %d is locked", r)
		}
	default:
		return nil
	}
	return w.refuse("Point", NoPeer, ErrEpochOpen, what)
}

func (e *rankEndpoint) OpenEpochs() error {
	var errs []error
	for _, w := range e.s.windows {
		errs = append(errs, w.closed())
	}
	return errors.Join(errs...)
}

// MarshalBinary returns the contents of the caller's part, or a mark if the window is freed. It copies them. Local.
func (w *Win[T]) MarshalBinary() ([]byte, error) {
	if w.w.freed || w.w.ended {
		return []byte(w.w.freedMark()), nil
	}
	return append([]byte(nil), w.w.mem...), nil
}

// freedMark returns the record of a freed window: some text of another length than the
// contents have.
func (w *window) freedMark() string {
	const mark = "this window was freed"
	if w.bytes == len(mark) {
		return mark + "."
	}
	return mark
}

// UnmarshalBinary restores the result of MarshalBinary in a window of the same length.
func (w *Win[T]) UnmarshalBinary(b []byte) error {
	apply, err := w.StageBinary(b)
	if err == nil {
		apply()
	}
	return err
}

// StageBinary is UnmarshalBinary in two steps: it checks a record and changes
// nothing; apply, which cannot fail, puts it in force.
func (w *Win[T]) StageBinary(b []byte) (apply func(), err error) {
	if string(b) == w.w.freedMark() {
		return func() { w.w.ended, w.mem = true, nil }, nil
	}
	mem, err := w.BinaryMemory(len(b))
	return func() { copy(mem, b) }, err
}

// BinaryMemory returns the memory to which UnmarshalBinary copies n bytes, for a restore that reads straight into the
// window. It returns nil if n is the length of a freed window's mark; StageBinary takes that mark. Local.
func (w *Win[T]) BinaryMemory(n int) ([]byte, error) {
	if n == len(w.w.freedMark()) {
		return nil, nil
	}
	if n != len(w.w.mem) {
		return nil, &Error{Call: "Restore", Comm: w.w.name, Peer: NoPeer, Tag: NoTag, Err: ErrLength,
			Text: fmt.Sprintf("%d bytes for a window of %d", n, len(w.w.mem))}
	}
	return w.w.mem, nil
}
