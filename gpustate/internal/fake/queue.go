package fake

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// queue runs its commands one after the other in a goroutine, which lives while
// there are commands.
type queue struct {
	mu      sync.Mutex
	pending []command
	running bool
	idle    *sync.Cond
	lazy    bool
}

type command struct {
	do   func() error
	ev   *event
	wait []*event
}

// events numbers the events of all devices, so that no two have the same.
var events atomic.Uint64

// event is complete when done is closed.
type event struct {
	done chan struct{}
	err  error
}

func (d *device) CreateQueue(desc driver.QueueDesc) (driver.Handle, error) {
	q := &queue{lazy: desc.Lazy}
	q.idle = sync.NewCond(&q.mu)
	return q, d.faults.hit("create queue", nil, nil)
}

func (d *device) ReleaseQueue(h driver.Handle) error { return d.Finish(h) }

func (d *device) Flush(driver.Handle) error { return d.faults.hit("flush", nil, nil) }

func (d *device) Finish(h driver.Handle) error {
	q := h.(*queue)
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.running {
		q.idle.Wait()
	}
	return d.faults.hit("finish", nil, nil)
}

// enqueue gives the command an event and lets the queue run it.
func (d *device) enqueue(h driver.Handle, wait []driver.Event, do func() error) (driver.Event, error) {
	if err := d.faults.hit("enqueue", nil, nil); err != nil {
		return 0, err
	}
	c := command{do: do, ev: &event{done: make(chan struct{})}}
	for _, w := range wait {
		c.wait = append(c.wait, d.event(w))
	}
	id := driver.Event(events.Add(1))
	d.mu.Lock()
	d.events[id] = c.ev
	d.mu.Unlock()
	q := h.(*queue)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = append(q.pending, c)
	if !q.running {
		q.running = true
		go q.run()
	}
	return id, nil
}

func (q *queue) run() {
	for {
		q.mu.Lock()
		if len(q.pending) == 0 {
			q.running = false
			q.idle.Broadcast()
			q.mu.Unlock()
			return
		}
		c := q.pending[0]
		q.pending = q.pending[1:]
		q.mu.Unlock()
		for _, w := range c.wait {
			<-w.done
		}
		c.ev.err = c.do()
		close(c.ev.done)
	}
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

func (d *device) WaitEvent(id driver.Event) error {
	e := d.event(id)
	<-e.done
	return e.err
}

func (d *device) EventDone(id driver.Event) (bool, error) {
	e := d.event(id)
	select {
	case <-e.done:
		return true, e.err
	default:
		return false, nil
	}
}

func (d *device) ReleaseEvent(id driver.Event) {
	d.event(id)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.events, id)
}

// event finds an event. One that was released, or is another device's, is a fault
// of the caller: a real API crashes.
func (d *device) event(id driver.Event) *event {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.events[id]
	if e == nil {
		panic(fmt.Sprintf("fake: event %d was released, or is of another device", id))
	}
	return e
}

func (d *device) Launch(q, kh driver.Handle, g driver.Grid, wait []driver.Event) (driver.Event, error) {
	k := kh.(*kernel)
	args := make([]Arg, len(k.set))
	for i, a := range k.set {
		switch a.Kind {
		case driver.ArgNone:
			return 0, fault("launch", "argument not set", nil)
		case driver.ArgMem:
			args[i].Bytes = a.Handle.(*mem).bytes
		case driver.ArgSampler:
			args[i].Sampler = *a.Handle.(*driver.SamplerDesc)
		case driver.ArgLocal:
			args[i].Bytes = make([]byte, a.Local)
		case driver.ArgValue:
			args[i].Bytes = a.Value
		}
	}
	f := k.f
	ev, err := d.enqueue(q, wait, func() error {
		if err := d.faults.hit("kernel "+k.name, &d.faults.launches, nil); err != nil {
			return err
		}
		f(Launch{Grid: g, Args: args})
		return nil
	})
	return d.maybeBlocking(q, false, ev, err)
}

func (d *device) Write(q, h driver.Handle, off int64, src []byte, blocking bool, wait []driver.Event) (driver.Event, error) {
	m := h.(*mem)
	ev, err := d.enqueue(q, wait, func() error {
		copy(m.bytes[off:off+int64(len(src))], src)
		return d.faults.hit("write", &d.faults.writes, nil)
	})
	return d.maybeBlocking(q, blocking, ev, err)
}

func (d *device) Read(q, h driver.Handle, off int64, dst []byte, blocking bool, wait []driver.Event) (driver.Event, error) {
	m := h.(*mem)
	ev, err := d.enqueue(q, wait, func() error {
		copy(dst, m.bytes[off:off+int64(len(dst))])
		return d.faults.hit("read", &d.faults.reads, nil)
	})
	return d.maybeBlocking(q, blocking, ev, err)
}

func (d *device) Copy(q, dst driver.Handle, dstOff int64, src driver.Handle, srcOff, n int64, wait []driver.Event) (driver.Event, error) {
	to, from := dst.(*mem), src.(*mem)
	ev, err := d.enqueue(q, wait, func() error {
		copy(to.bytes[dstOff:dstOff+n], from.bytes[srcOff:srcOff+n])
		return nil
	})
	return d.maybeBlocking(q, false, ev, err)
}

// rows calls do for each row of the region with its place in the image and in
// packed memory.
func rows(m *mem, r driver.Region, do func(image []byte, packed int)) {
	width := r.Size[0] * m.pixel
	packed := 0
	for z := range r.Size[2] {
		for y := range r.Size[1] {
			at := (((z+r.Origin[2])*m.image.Height+y+r.Origin[1])*m.image.Width + r.Origin[0]) * m.pixel
			do(m.bytes[at:at+width], packed)
			packed += width
		}
	}
}

func (d *device) WriteImage(q, h driver.Handle, r driver.Region, src []byte, blocking bool, wait []driver.Event) (driver.Event, error) {
	m := h.(*mem)
	ev, err := d.enqueue(q, wait, func() error {
		rows(m, r, func(image []byte, packed int) { copy(image, src[packed:]) })
		return d.faults.hit("write image", &d.faults.writes, nil)
	})
	return d.maybeBlocking(q, blocking, ev, err)
}

func (d *device) ReadImage(q, h driver.Handle, r driver.Region, dst []byte, blocking bool, wait []driver.Event) (driver.Event, error) {
	m := h.(*mem)
	ev, err := d.enqueue(q, wait, func() error {
		rows(m, r, func(image []byte, packed int) { copy(dst[packed:], image) })
		return d.faults.hit("read image", &d.faults.reads, nil)
	})
	return d.maybeBlocking(q, blocking, ev, err)
}

func (d *device) CopyImageToBuffer(q, dst driver.Handle, dstOff int64, image driver.Handle, wait []driver.Event) (driver.Event, error) {
	return d.Copy(q, dst, dstOff, image, 0, int64(len(image.(*mem).bytes)), wait)
}

func (d *device) CopyBufferToImage(q, image, src driver.Handle, srcOff int64, wait []driver.Event) (driver.Event, error) {
	return d.Copy(q, image, 0, src, srcOff, int64(len(image.(*mem).bytes)), wait)
}

func (d *device) Marker(q driver.Handle, wait []driver.Event) (driver.Event, error) {
	return d.enqueue(q, wait, func() error { return nil })
}
