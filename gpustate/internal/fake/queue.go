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

// transfer enqueues a command that moves bytes.
func (d *device) transfer(q driver.Handle, what string, blocking bool, wait []driver.Event, do func() error,
	uses ...*mem) (driver.Event, error) {
	ev, err := d.enqueue(q, wait, &command{what: what, do: do, uses: uses})
	return d.maybeBlocking(q, blocking, ev, err)
}

// transferBytes is transfer of a linear object's bytes, those of the host when it is
// mapped.
func (d *device) transferBytes(q driver.Handle, what string, blocking bool, wait []driver.Event, m *mem,
	do func(bytes []byte) error) (driver.Event, error) {
	c := &command{what: what, uses: []*mem{m}, host: true}
	c.do = func() error {
		if m.mapped != nil {
			return do(m.mapped)
		}
		return do(m.bytes)
	}
	ev, err := d.enqueue(q, wait, c)
	return d.maybeBlocking(q, blocking, ev, err)
}

func (d *device) Write(q, h driver.Handle, off int64, src []byte, blocking bool, wait []driver.Event) (driver.Event,
	error) {
	return d.transferBytes(q, "write", blocking, wait, h.(*mem), func(bytes []byte) error {
		copy(bytes[off:off+int64(len(src))], src)
		return d.faults.hit("write", &d.faults.writes, nil)
	})
}

func (d *device) Read(q, h driver.Handle, off int64, dst []byte, blocking bool, wait []driver.Event) (driver.Event,
	error) {
	return d.transferBytes(q, "read", blocking, wait, h.(*mem), func(bytes []byte) error {
		copy(dst, bytes[off:off+int64(len(dst))])
		return d.faults.hit("read", &d.faults.reads, nil)
	})
}
