package mpiwrap

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Put writes src to element at and following of target's part. A Put to
// ProcNull does nothing, as does every access below.
func (w *Win[T]) Put(target, at int, src []T) error {
	return w.w.access("Put", driver.Rma{Kind: driver.Put, Target: target, Displ: at, Count: len(src),
		Origin: bytesOf(src)})
}

// Get reads from element at and following of target's part into dest.
func (w *Win[T]) Get(target, at int, dest []T) error {
	return w.w.access("Get", driver.Rma{Kind: driver.Get, Target: target, Displ: at, Count: len(dest),
		Result: bytesOf(dest)})
}

// Accumulate combines src into element at and following of target's part:
// memory = memory op src, atomically per element.
func (w *Win[T]) Accumulate(target, at int, src []T, op Op) error {
	return w.w.access("Accumulate", driver.Rma{Kind: driver.Accumulate, Target: target, Displ: at, Count: len(src),
		Op: driver.Op(op), Origin: bytesOf(src)})
}

// GetAccumulate is Accumulate that also stores the earlier contents in dest. With NoOp it is an atomic Get.
func (w *Win[T]) GetAccumulate(target, at int, dest, src []T, op Op) error {
	if len(dest) != len(src) {
		return w.w.refuse("GetAccumulate", target, ErrLength, fmt.Sprintf("dest has %d elements, src %d", len(dest),
			len(src)))
	}
	return w.w.access("GetAccumulate", driver.Rma{Kind: driver.GetAccumulate, Target: target, Displ: at,
		Count: len(src),
		Op:    driver.Op(op), Origin: bytesOf(src), Result: bytesOf(dest)})
}

// FetchAndOp is GetAccumulate for one element; *result is valid after the next
// Flush, Unlock or Fence.
func (w *Win[T]) FetchAndOp(target, at int, result *T, value T, op Op) error {
	origin := []T{value}
	return w.w.access("FetchAndOp", driver.Rma{Kind: driver.FetchAndOp, Target: target, Displ: at, Count: 1,
		Op: driver.Op(op), Origin: bytesOf(origin), Result: bytesOf(unsafe.Slice(result, 1))})
}

// CompareAndSwap stores value in element at of target's part if it equals compare. *result gets the earlier contents,
// valid after the next Flush, Unlock or Fence. It is for integers.
func (w *Win[T]) CompareAndSwap(target, at int, result *T, compare, value T) error {
	if t := w.w.typ; t == driver.Float32 || t == driver.Float64 || t == driver.Complex64 || t == driver.Complex128 {
		return w.w.refuse("CompareAndSwap", target, ErrOp, "MPI compares integers only")
	}
	return w.w.access("CompareAndSwap", driver.Rma{Kind: driver.CompareAndSwap, Target: target, Displ: at, Count: 1,
		Origin: bytesOf([]T{value}), Compare: bytesOf([]T{compare}), Result: bytesOf(unsafe.Slice(result, 1))})
}

func (w *window) refuse(name string, target int, err error, text string) error {
	return &Error{Call: name, Comm: w.name, Peer: target, Tag: NoTag, Err: err, Text: text}
}

// access checks and starts one access. Its buffers stay pinned until the epoch
// ends.
func (w *window) access(name string, a driver.Rma) error {
	if a.Target == ProcNull {
		return w.usable(name)
	}
	if err := w.target(name, a.Target); err != nil {
		return err
	}
	if a.Displ < 0 || a.Displ > w.perRank[a.Target]-a.Count {
		return w.refuse(name, a.Target, ErrLength,
			fmt.Sprintf("elements %d to %d of %d", a.Displ, a.Displ+a.Count, w.perRank[a.Target]))
	}
	if a.Count > math.MaxInt32 {
		return w.refuse(name, a.Target, ErrTooLarge, fmt.Sprintf("%d elements", a.Count))
	}
	if a.Op < driver.Sum || a.Op > driver.NoOp {
		return w.refuse(name, a.Target, ErrOp, fmt.Sprintf("operator %d", a.Op))
	}
	if len(w.locks) > 0 && !w.locks[a.Target] {
		return w.refuse(name, a.Target, ErrEpochOpen, "this window holds a lock on another rank, but not on this one")
	}
	g, err := w.c.ch.Quick(call.Rma, a.Target, NoTag)
	if err != nil {
		return err
	}
	defer g.Leave()
	a.Type = w.typ
	w.c.st.Lock()
	for _, b := range [][]byte{a.Origin, a.Result, a.Compare} {
		if len(b) > 0 && w.c.st.Info.Pin {
			p := w.pinned[a.Target] // holds buffers in place until unpin
			if p == nil {
				p = &runtime.Pinner{}
				w.pinned[a.Target] = p
			}
			p.Pin(unsafe.SliceData(b))
		}
	}
	if !w.all && len(w.locks) == 0 {
		w.dirty = true
	}
	w.c.st.Unlock()
	return w.wrap(call.Rma, a.Target, w.c.st.Driver.Rma(w.h, a))
}

// Fence ends the accesses of all ranks since the last Fence; afterwards their results are in place everywhere. It is
// collective over the window's communicator. An epoch of Lock or LockAll is an error that matches ErrEpochOpen.
func (w *Win[T]) Fence() error {
	s := &w.w
	if err := s.usable("Fence"); err != nil {
		return err
	}
	if s.all || len(s.locks) > 0 {
		return s.refuse("Fence", NoPeer, ErrEpochOpen, "")
	}
	a, err := s.c.enter(call.Fence)
	if err != nil {
		return err
	}
	defer a.Leave()
	err = s.c.st.Driver.WinSync(s.h, driver.WinSync{Kind: driver.Fence})
	s.dirty = false
	s.unpinAll()
	return s.wrap(call.Fence, NoPeer, err)
}

// Lock opens an epoch on target's part of the window; shared lets other ranks lock it too. It may wait for other ranks
// that hold the lock. A second epoch is an error that matches ErrEpochOpen.
func (w *Win[T]) Lock(target int, shared bool) error {
	s := &w.w
	if err := s.target("Lock", target); err != nil {
		return err
	}
	if s.all || s.locks[target] || s.dirty {
		return s.refuse("Lock", target, ErrEpochOpen, "")
	}
	if err := s.sync(call.Lock, driver.WinSync{Kind: driver.Lock, Rank: target, Shared: shared}); err != nil {
		return err
	}
	s.locks[target] = true
	return nil
}

// Unlock completes the accesses to target and ends the epoch.
func (w *Win[T]) Unlock(target int) error {
	s := &w.w
	if err := s.target("Unlock", target); err != nil {
		return err
	}
	if !s.locks[target] {
		return s.refuse("Unlock", target, ErrRequest, "the rank is not locked")
	}
	err := s.sync(call.Unlock, driver.WinSync{Kind: driver.Unlock, Rank: target})
	delete(s.locks, target)
	s.unpin(target)
	return err
}

// LockAll opens an epoch on every rank, shared with the other ranks.
func (w *Win[T]) LockAll() error {
	s := &w.w
	if err := s.usable("LockAll"); err != nil {
		return err
	}
	if s.all || len(s.locks) > 0 || s.dirty {
		return s.refuse("LockAll", NoPeer, ErrEpochOpen, "")
	}
	if err := s.sync(call.Lock, driver.WinSync{Kind: driver.LockAll}); err != nil {
		return err
	}
	s.all = true
	return nil
}

// UnlockAll completes all accesses and ends the epoch of LockAll.
func (w *Win[T]) UnlockAll() error {
	s := &w.w
	if err := s.usable("UnlockAll"); err != nil {
		return err
	}
	if !s.all {
		return s.refuse("UnlockAll", NoPeer, ErrRequest, "LockAll was not called")
	}
	err := s.sync(call.Unlock, driver.WinSync{Kind: driver.UnlockAll})
	s.all = false
	s.unpinAll()
	return err
}

// Flush completes the caller's accesses to target inside a lock epoch: their results are in place on both sides.
// Without a lock on target the error matches ErrRequest.
func (w *Win[T]) Flush(target int) error { return w.w.flush("Flush", driver.Flush, target) }

// FlushLocal completes accesses to target on the caller's side: its slices may be
// used again.
func (w *Win[T]) FlushLocal(target int) error {
	return w.w.flush("FlushLocal", driver.FlushLocal, target)
}

// FlushAll completes the caller's accesses to all ranks it has locked.
func (w *Win[T]) FlushAll() error {
	s := &w.w
	if err := s.usable("FlushAll"); err != nil {
		return err
	}
	if err := s.sync(call.Flush, driver.WinSync{Kind: driver.FlushAll}); err != nil {
		return err
	}
	s.unpinAll()
	return nil
}

// flush completes accesses to one target, at least on the caller's side: it holds
// their buffers no longer.
func (w *window) flush(name string, k driver.WinSyncKind, target int) error {
	if err := w.target(name, target); err != nil {
		return err
	}
	if !w.all && !w.locks[target] {
		return w.refuse(name, target, ErrRequest, "the rank is not locked")
	}
	err := w.sync(call.Flush, driver.WinSync{Kind: k, Rank: target})
	if err == nil {
		w.unpin(target)
	}
	return err
}

func (w *window) unpin(target int) {
	w.c.st.Lock()
	defer w.c.st.Unlock()
	if p := w.pinned[target]; p != nil {
		p.Unpin()
		delete(w.pinned, target)
	}
}

func (w *window) unpinAll() {
	w.c.st.Lock()
	defer w.c.st.Unlock()
	for target, p := range w.pinned {
		p.Unpin()
		delete(w.pinned, target)
	}
}

// Sync makes direct accesses to the caller's own memory and accesses of other ranks visible to each other inside a
// LockAll epoch.
func (w *Win[T]) Sync() error {
	s := &w.w
	if err := s.usable("Sync"); err != nil {
		return err
	}
	return s.sync(call.Flush, driver.WinSync{Kind: driver.Sync})
}

func (w *window) sync(op call.Op, y driver.WinSync) error {
	a, err := w.c.ch.Block(op, y.Rank, NoTag)
	if err != nil {
		return err
	}
	defer a.Leave()
	return w.wrap(op, y.Rank, w.c.st.Driver.WinSync(w.h, y))
}

func (w *window) target(name string, target int) error {
	if err := w.usable(name); err != nil {
		return err
	}
	if target < 0 || target >= w.c.size {
		return w.refuse(name, target, ErrRank, fmt.Sprintf("size is %d", w.c.size))
	}
	return nil
}
