package mpiwrap

import (
	"fmt"
	"runtime"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Fence ends the accesses of all ranks since the last Fence; afterwards their
// results are in place everywhere. It is collective over the window's communicator.
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

// Lock opens an epoch on target's part of the window; shared lets other ranks
// lock it too.
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

// Flush completes the caller's accesses to target inside a lock epoch: their
// results are in place on both sides.
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

// pinFor holds buffers of accesses to target in place until unpin.
func (w *window) pinFor(target int) *runtime.Pinner {
	p := w.pinned[target] // the caller holds state.own
	if p == nil {
		p = &runtime.Pinner{}
		w.pinned[target] = p
	}
	return p
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

// Sync makes direct accesses to the caller's own memory and those of other ranks
// visible to each other inside a LockAll epoch.
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
