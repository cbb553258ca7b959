package gpustate

import (
	"errors"
	"fmt"
	"runtime"
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
	k.mu.Lock()
	q.mu.Lock()
	d, t := q.dev, &q.commands
	if k.fit == d.changes.Load() && k.dev == d && t.issued+1 < t.due && len(after) == 0 {
		var h driver.Event
		if h, err = d.drv.Launch(q.h, k.h, g, nil); err == nil && h == 0 {
			k.ran(&g)
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
	k.mu.Unlock()
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
	k.mu.Lock()
	defer k.mu.Unlock()
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
	now := q.dev.changes.Load() // what happens during the checks is seen by the next launch
	if k.dev.closed.Load() {
		return nil, ErrClosed
	}
	if q.released.Load() {
		return nil, q.fail("launch on", ErrReleased)
	}
	err := k.usable(q.dev)
	if err == nil {
		err = k.ready()
	}
	if err != nil {
		return nil, k.fail("launch", err)
	}
	k.fit = now
	if len(after) > 0 {
		e, err := q.issue(false, after, func(wait []driver.Event) (driver.Event, error) {
			return q.dev.drv.Launch(q.h, k.h, *g, wait)
		})
		if err == nil {
			k.ran(g)
		}
		return e, k.fail("launch", err)
	}
	q.commands.room()
	h, err := q.dev.drv.Launch(q.h, k.h, *g, nil)
	return q.launched(k, g, h, err)
}

// launched takes in what the driver said of a launch.
//
//go:noinline
func (q *Queue) launched(k *Kernel, g *driver.Grid, h driver.Event, err error) (*Event, error) {
	for err != nil && errors.Is(err, ErrOutOfMemory) && q.dev.evict() { // some drivers find memory late
		h, err = q.dev.drv.Launch(q.h, k.h, *g, nil)
	}
	if err != nil {
		return nil, k.fail("launch", err)
	}
	k.ran(g)
	return q.commands.enter(false, h)
}

// ran notes the work-group of a launch.
func (k *Kernel) ran(g *driver.Grid) {
	if g.Local[0] != 0 {
		k.group = g.Local[0] * g.Local[1] * g.Local[2]
	}
}

// Write copies src to b from byte off on and returns when that is done. On a
// device of a server it may return when the bytes are on their way; whatever is
// issued afterwards, on any queue, finds them in b.
func (q *Queue) Write(b Linear, off int, src []byte) error {
	_, err := q.transfer("write", b, off, src, false, true, nil)
	return err
}

// WriteAsync begins to copy src to b. src stays as it is until the event is
// complete; reads before it may fill it. On a device of a server such a call returns
// when they have.
func (q *Queue) WriteAsync(b Linear, off int, src []byte, after ...*Event) (*Event, error) {
	return q.transfer("write", b, off, src, false, false, after)
}

// Read copies bytes of b from off on into dst and returns when that is done.
func (q *Queue) Read(b Linear, off int, dst []byte) error {
	_, err := q.transfer("read", b, off, dst, true, true, nil)
	return err
}

// ReadAsync begins to copy bytes of b into dst, which is not used before the event is
// complete, or that of a command which comes after it: by its queue, or by what it waits
// for.
func (q *Queue) ReadAsync(b Linear, off int, dst []byte, after ...*Event) (*Event, error) {
	return q.transfer("read", b, off, dst, true, false, after)
}

func (q *Queue) transfer(op string, b Linear, off int, host []byte, read, block bool, after []*Event) (*Event, error) {
	e := b.linear()
	return q.move(op, e, host, block, after, func() error { return e.reach(q.dev, off, len(host)) },
		func(wait []driver.Event) (driver.Event, error) {
			switch {
			case len(host) == 0:
				return q.marker(wait)
			case read:
				return q.dev.drv.Read(q.h, e.h, int64(off), host, block, wait)
			}
			return q.dev.drv.Write(q.h, e.h, int64(off), host, block, wait)
		})
}

// move issues a transfer between an object and the program's memory, which stays where it
// is until the command is complete.
func (q *Queue) move(op string, e *entry, host []byte, block bool, after []*Event, check func() error,
	do func(wait []driver.Event) (driver.Event, error)) (*Event, error) {
	var pin *runtime.Pinner
	if !block && len(host) > 0 {
		pin = new(runtime.Pinner)
		pin.Pin(&host[0])
	}
	ev, err := q.command(op, []*entry{e}, block && len(host) > 0, after, check, do, pin)
	if err != nil && pin != nil {
		pin.Unpin()
	}
	return ev, err
}

// command issues a command on objects that check finds fit for it; what pin holds it holds
// until it is complete.
func (q *Queue) command(op string, uses []*entry, block bool, after []*Event, check func() error,
	do func(wait []driver.Event) (driver.Event, error), pin *runtime.Pinner) (*Event, error) {
	if err := q.begin(); err != nil {
		return nil, err
	}
	defer q.end()
	for i, e := range uses {
		if i == 0 || e != uses[0] {
			e.use.RLock()
			defer e.use.RUnlock()
		}
	}
	err := check()
	var ev *Event
	if err == nil {
		ev, err = q.issue(block, after, do)
	}
	if err != nil {
		return nil, uses[0].fail(op, err)
	}
	if pin != nil {
		ev.keep(pin)
		q.commands.watch(ev)
	}
	return ev, nil
}

func (q *Queue) marker(wait []driver.Event) (driver.Event, error) {
	return q.dev.drv.Marker(q.h, wait)
}

// reach says whether n bytes from off on lie within the object.
func (e *entry) reach(d *Device, off, n int) error {
	if err := e.usable(d); err != nil {
		return err
	}
	if size := e.obj.Mem.Bytes; off < 0 || n < 0 || int64(off) > size || int64(n) > size-int64(off) {
		return fmt.Errorf("bytes %d+%d of %d: %w", off, n, size, ErrRange)
	}
	return nil
}

// Copy copies n bytes within the device: to dst from dstOff on, from src at
// srcOff. The ranges do not overlap.
func (q *Queue) Copy(dst Linear, dstOff int, src Linear, srcOff, n int, after ...*Event) (*Event, error) {
	to, from := dst.linear(), src.linear()
	check := func() error {
		if err := to.reach(q.dev, dstOff, n); err != nil {
			return err
		}
		return from.fail("copy from", from.reach(q.dev, srcOff, n))
	}
	return q.command("copy to", []*entry{to, from}, false, after, check,
		func(wait []driver.Event) (driver.Event, error) {
			if n == 0 {
				return q.marker(wait)
			}
			return q.dev.drv.Copy(q.h, to.h, int64(dstOff), from.h, int64(srcOff), int64(n), wait)
		}, nil)
}

// Fill writes a pattern over n bytes of b from off on, again and again. The pattern has 1,
// 2, 4, 8, 16, 32, 64 or 128 bytes; off and n are multiples of its length.
func (q *Queue) Fill(b Linear, off, n int, pattern []byte, after ...*Event) (*Event, error) {
	e := b.linear()
	pattern = slices.Clone(pattern)
	check := func() error {
		k := len(pattern)
		if k < 1 || k > driver.MaxPattern || k&(k-1) != 0 || off%k != 0 || n%k != 0 {
			return fmt.Errorf("a pattern of %d bytes for bytes %d+%d: want a power of two up to %d that divides both: "+
				"%w", k, off, n, driver.MaxPattern, ErrRange)
		}
		return e.reach(q.dev, off, n)
	}
	return q.command("fill", []*entry{e}, false, after, check, func(wait []driver.Event) (driver.Event, error) {
		if n == 0 {
			return q.marker(wait)
		}
		return q.dev.drv.Fill(q.h, e.h, int64(off), int64(n), pattern, wait)
	}, nil)
}

// Marker gives an event that completes after those in after, or, without any,
// after all commands issued before it.
func (q *Queue) Marker(after ...*Event) (*Event, error) {
	if err := q.begin(); err != nil {
		return nil, err
	}
	defer q.end()
	ev, err := q.issue(false, after, q.marker)
	if err != nil {
		return nil, q.fail("mark", err)
	}
	return ev, nil
}

// Barrier is Marker; what is issued to the queue after it also waits until its event is
// complete. Between commands of an in-order queue it changes nothing.
func (q *Queue) Barrier(after ...*Event) (*Event, error) {
	if err := q.begin(); err != nil {
		return nil, err
	}
	defer q.end()
	ev, err := q.issue(false, after, func(wait []driver.Event) (driver.Event, error) {
		return q.dev.drv.Barrier(q.h, wait)
	})
	if err != nil {
		return nil, q.fail("order", err)
	}
	return ev, nil
}
