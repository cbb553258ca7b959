package fake

import (
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

func (d *device) CreateQueue(desc driver.QueueDesc) (driver.Handle, error) {
	if err := d.faults.hit("create queue", nil, nil); err != nil {
		return nil, err
	}
	if err := d.faults.room("create queue"); err != nil {
		return nil, err
	}
	q := &queue{lazy: desc.Lazy, outOfOrder: desc.OutOfOrder}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queues = append(d.queues, q)
	return q, nil
}

func (d *device) ReleaseQueue(h driver.Handle) error {
	err := d.Finish(h)
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.live(h)
	if q.foreign {
		return err
	}
	q.released = true
	d.queues = slices.DeleteFunc(d.queues, func(o *queue) bool { return o == q })
	return err
}

func (d *device) Flush(h driver.Handle) error {
	hesitate()
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.live(h)
	q.flushed = q.issued
	d.changed.Broadcast()
	return d.faults.hit("flush", nil, nil)
}

func (d *device) Finish(h driver.Handle) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.live(h)
	q.flushed = q.issued
	d.changed.Broadcast()
	last := q.issued
	d.until("Finish", func() bool {
		return !slices.ContainsFunc(q.pending, func(c *command) bool { return c.number <= last })
	})
	return d.faults.hit("finish", nil, nil)
}

// maybeBlocking runs a blocking command to its end and leaves out the event of
// others on a lazy queue.
func (d *device) maybeBlocking(q driver.Handle, blocking bool, ev driver.Event, err error) (driver.Event, error) {
	if err != nil {
		return 0, err
	}
	if !blocking {
		if q.(*queue).lazy {
			d.ReleaseEvent(ev)
			ev = 0
		}
		return ev, nil
	}
	err = d.WaitEvent(ev)
	d.ReleaseEvent(ev)
	return 0, err
}

// WaitEvent flushes the event's queue, as clWaitForEvents does.
func (d *device) WaitEvent(id driver.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.event(id)
	e.q.flushed = e.q.issued
	d.changed.Broadcast()
	d.until("WaitEvent", func() bool { return e.done })
	return e.err
}

func (d *device) EventDone(id driver.Event) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.event(id)
	if !e.done {
		d.nudge()
	}
	return e.done, e.err
}

func (d *device) ReleaseEvent(id driver.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.event(id)
	delete(d.events, id)
}

func (d *device) Launch(q, kh driver.Handle, g driver.Grid, wait []driver.Event) (driver.Event, error) {
	hesitate()
	k := kh.(*kernel)
	k.check("launch")
	c := &command{what: "launch of " + k.name, kernel: true}
	args := make([]Arg, len(k.set))
	for i, a := range k.set {
		switch a.Kind {
		case driver.ArgNone:
			return 0, fault("launch", "argument not set", nil)
		case driver.ArgMem:
			m := a.Handle.(*mem)
			c.uses = append(c.uses, m)
			args[i].Bytes = m.bytes
		case driver.ArgSampler:
			args[i].Sampler = *a.Handle.(*driver.SamplerDesc)
		case driver.ArgLocal:
			args[i].Bytes = make([]byte, a.Local)
		case driver.ArgValue:
			args[i].Bytes = slices.Clone(a.Value)
		}
	}
	if err := d.groups(k, g); err != nil {
		return 0, err
	}
	globals := map[string][]byte{}
	for name, v := range k.of.variables {
		c.uses, globals[name] = append(c.uses, v), v.bytes
	}
	f, text := k.f, k.of.text
	c.do = func() error {
		if err := d.faults.hit("kernel "+k.name, &d.faults.launches, nil); err != nil {
			return err
		}
		f(Launch{Grid: g, Args: args, Globals: globals, Text: text})
		return nil
	}
	ev, err := d.enqueue(q, wait, c)
	return d.maybeBlocking(q, false, ev, err)
}

// groups refuses work-groups and local memory that the device does not have.
func (d *device) groups(k *kernel, g driver.Grid) error {
	items, local := 1, int64(0)
	for _, n := range g.Local {
		items *= max(n, 1)
	}
	for _, a := range k.set {
		local += int64(a.Local)
	}
	switch {
	case d.info.MaxGroup > 0 && items > d.info.MaxGroup:
		return fault("launch", "invalid work-group size", nil)
	case d.info.LocalBytes > 0 && local > d.info.LocalBytes:
		return fault("launch", "out of resources", nil)
	}
	return nil
}
