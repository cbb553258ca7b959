package gpustate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// Launch runs a kernel over an index space. global has one to three extents in
// work items, local as many extents of a work-group, each a divisor of the
// global one, or is nil: the device chooses. The arguments are those the kernel
// has now; they may be set again as soon as Launch returns. The kernel starts
// after the commands in after.
func (q *Queue) Launch(k *Kernel, global, local []int, after ...*Event) (e *Event, err error) {
	// A driver's launch leaves little of this code, and of what it reads, in the processor's caches. So what
	// happens rarely is elsewhere: a kernel is checked only when something may have changed since it was
	// found fit, and a queue only at the command of number due.
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

// LaunchAt is Launch with the index space beginning at offset, which has as many
// extents as global. CUDA devices take only offset 0.
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
// misfit says why.
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

// misfit says what is wrong with extents that fill refuses.
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
	now := q.dev.state.Changes.Load() // what happens during the checks is seen by the next launch
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

// launched takes in what the driver said of a launch.
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
