package sim

import (
	"bytes"
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// window is memory of every rank of a communicator that the others may reach.
type window struct {
	comm *comm
	mem  [][]byte
	unit []int
	lock []lockState
}

type lockState struct {
	exclusive bool
	shared    int
}

// WinAllocate makes a window with bytes of the caller's memory in it.
func (r *rank) WinAllocate(n, unit int, c driver.Handle) (driver.Handle, []byte, error) {
	h, err := r.create(c, "WinAllocate", []int{n, unit}, func(s *slot, m *comm) {
		w := &window{comm: m, lock: make([]lockState, len(m.members))}
		for i := range m.members {
			w.mem = append(w.mem, make([]byte, s.extra[i][0]))
			w.unit = append(w.unit, s.extra[i][1])
		}
		h := r.w.handle()
		r.w.wins[h] = w
		for i := range s.handles {
			s.handles[i] = h
		}
	})
	if err != nil {
		return 0, nil, err
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	w := r.w.wins[h]
	me, _ := r.rankIn(w.comm)
	return h, w.mem[me], nil
}

// WinFree waits for the others and drops the window.
func (r *rank) WinFree(h driver.Handle) error {
	return r.fence(h)
}

func (r *rank) fence(h driver.Handle) error {
	r.w.mu.Lock()
	c := r.w.wins[h].comm.h
	err := r.finishAccesses(h, everyTarget)
	r.w.mu.Unlock()
	if err != nil {
		return err
	}
	return r.Collective(driver.Coll{Kind: driver.Barrier, Comm: c})
}

// WinSync synchronises: accesses that have been put off happen now at the latest.
func (r *rank) WinSync(h driver.Handle, s driver.WinSync) error {
	if s.Kind == driver.Fence {
		return r.fence(h)
	}
	return r.call(func() (err error) {
		w := r.w.wins[h]
		switch s.Kind {
		case driver.Unlock, driver.Flush, driver.FlushLocal:
			err = r.finishAccesses(h, s.Rank)
		case driver.UnlockAll, driver.FlushAll:
			err = r.finishAccesses(h, everyTarget)
		}
		if err != nil {
			return err
		}
		switch s.Kind {
		case driver.Lock:
			return r.lock(w, s.Rank, s.Shared)
		case driver.Unlock:
			r.unlock(w, s.Rank)
		case driver.LockAll:
			for i := range w.lock {
				if err := r.lock(w, i, true); err != nil {
					return err
				}
			}
		case driver.UnlockAll:
			for i := range w.lock {
				r.unlock(w, i)
			}
		}
		return nil
	})
}

func (r *rank) lock(w *window, i int, shared bool) error {
	l := &w.lock[i]
	err := r.await(func() bool { return !l.exclusive && (shared || l.shared == 0) },
		func() string { return fmt.Sprintf("lock of the window of rank %d", i) })
	switch {
	case err != nil:
		return err
	case shared:
		l.shared++
	default:
		l.exclusive = true
	}
	return nil
}

func (r *rank) unlock(w *window, i int) {
	l := &w.lock[i]
	if l.exclusive {
		l.exclusive = false
	} else {
		l.shared--
	}
	r.w.wakeAll()
}

// Rma does one access, or puts it off until its synchronisation.
func (r *rank) Rma(h driver.Handle, a driver.Rma) error {
	return r.call(func() error {
		q := access{h: h, call: r.calls, Rma: a}
		if r.putOff(&q) {
			r.accesses = append(r.accesses, q)
			return nil
		}
		return r.do(&q)
	})
}

// do is one access.
func (r *rank) do(q *access) error {
	a := &q.Rma
	if q.call != r.calls && !r.pinnedOrEnd("one-sided access", a.Origin, a.Result, a.Compare) {
		return r.w.aborted
	}
	w := r.w.wins[q.h]
	n, from := a.Count*a.Type.Size(), a.Displ*w.unit[a.Target]
	if from < 0 || from+n > len(w.mem[a.Target]) {
		return fail(driver.ClassRMA, "access of %d bytes at %d is outside the window of rank %d (%d bytes)",
			n, from, a.Target, len(w.mem[a.Target]))
	}
	mem := w.mem[a.Target][from : from+n]
	switch a.Kind {
	case driver.Put:
		copy(mem, a.Origin)
	case driver.Get:
		copy(a.Result, mem)
	case driver.CompareAndSwap:
		copy(a.Result, mem)
		if bytes.Equal(mem, a.Compare) {
			copy(mem, a.Origin)
		}
	default:
		if a.Kind != driver.Accumulate {
			copy(a.Result, mem)
		}
		if a.Op == driver.NoOp {
			return nil
		}
		return Fold(a.Type, a.Op, mem, a.Origin)
	}
	return nil
}
