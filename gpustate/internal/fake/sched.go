package fake

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// Commands run as late and in as odd an order as the standards allow: none before the program waits for it, or asks
// again and again after a flush. Then commands of all flushed queues run in an order that a seed decides, within the
// promises of queues and events.

// seed and opened decide the order on the next device that is opened.
var seed, opened atomic.Uint64

// Reseed lets the devices that are opened from now on run their commands in another
// order; the same seed gives the same order to a program of one goroutine.
func Reseed(s uint64) {
	seed.Store(s)
	opened.Store(0)
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(seed.Load(), opened.Add(1))) }

// hesitant is whether calls wait before they look at their arguments, see
// Hesitate.
var hesitant atomic.Bool

// Hesitate lets calls that use objects wait now and then before they begin, so that another goroutine may release the
// object that the caller has just looked at.
func Hesitate(on bool) { hesitant.Store(on) }

func hesitate() {
	if hesitant.Load() && rand.IntN(4) == 0 {
		time.Sleep(100 * time.Microsecond)
	}
}

// queue holds its commands until they are complete.
type queue struct {
	pending    []*command
	lazy       bool
	outOfOrder bool
	issued     uint64
	flushed    uint64 // of the issued ones
	released   bool
	foreign    bool // other code's, which never releases it
}

type command struct {
	number  uint64 // in its queue
	what    string
	do      func() error
	ev      *event
	wait    []*event
	uses    []*mem
	kernel  bool
	host    bool // it moves the host's bytes of an object that is mapped
	barrier bool // the commands of its queue behind it come after it
	running bool
}

// event is complete when done is set; guarded by the device.
type event struct {
	q    *queue
	done bool
	err  error
}

// patience is how long a kernel may block before others run beside it.
const patience = 2 * time.Millisecond

// stuck is how long a command may wait for one that cannot begin. Real devices wait
// for ever.
const stuck = 20 * time.Second

// ready reports whether a command may begin.
func (c *command) ready(q *queue) bool {
	if c.running || c.number > q.flushed || slices.ContainsFunc(c.wait, func(e *event) bool { return !e.done }) {
		return false
	}
	return q.outOfOrder || q.pending[0] == c
}

// pick chooses one of the commands that may begin; mu is held.
func (d *device) pick() (*queue, *command) {
	var q *queue
	var c *command
	n := 0
	for _, of := range d.queues {
		for _, candidate := range of.pending {
			if candidate.ready(of) {
				if n++; d.rng.IntN(n) == 0 {
					q, c = of, candidate
				}
			}
			if !of.outOfOrder || candidate.barrier {
				break
			}
		}
	}
	if c != nil {
		c.running = true
	}
	return q, c
}

// until runs commands until done says that it is enough; mu is held.
func (d *device) until(what string, done func() bool) {
	var deadline time.Time
	for !done() {
		q, c := d.pick()
		if c != nil {
			d.run(q, c)
			deadline = time.Time{}
			continue
		}
		if deadline.IsZero() {
			deadline = time.Now().Add(stuck)
			defer time.AfterFunc(stuck+time.Second, d.changed.Broadcast).Stop()
		}
		if time.Now().After(deadline) && !d.running() {
			panic("fake: " + what + " waits for a command whose queue was not flushed, or for itself")
		}
		d.changed.Wait()
	}
}

func (d *device) running() bool {
	return slices.ContainsFunc(d.queues, func(q *queue) bool {
		return slices.ContainsFunc(q.pending, func(c *command) bool { return c.running })
	})
}

// run runs a command that was picked and gives mu back meanwhile. A kernel that takes
// long goes on beside others.
func (d *device) run(q *queue, c *command) {
	if !c.kernel {
		d.mu.Unlock()
		err := c.execute()
		d.mu.Lock()
		d.complete(q, c, err)
		return
	}
	ended := make(chan struct{})
	go func() {
		err := c.execute()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.complete(q, c, err)
		close(ended)
	}()
	d.mu.Unlock()
	patient := time.NewTimer(patience)
	select {
	case <-ended:
	case <-patient.C:
	}
	patient.Stop()
	d.mu.Lock()
}

// execute runs a command alone on its memory.
func (c *command) execute() error {
	var locked []*sync.Mutex
	for _, m := range c.uses { // in the order of their making
		locked = append(locked, &m.base.mu)
	}
	for _, l := range locked {
		l.Lock()
	}
	defer func() {
		for _, l := range locked {
			l.Unlock()
		}
	}()
	return c.do()
}

// complete takes a command out of its queue; mu is held.
func (d *device) complete(q *queue, c *command, err error) {
	c.ev.done, c.ev.err = true, err
	q.pending = slices.DeleteFunc(q.pending, func(p *command) bool { return p == c })
	for _, m := range c.uses {
		m.base.pending--
		m.base.poison()
	}
	d.changed.Broadcast()
}

// nudge begins one command, as a device does that was given work; mu is held.
func (d *device) nudge() {
	if q, c := d.pick(); c != nil {
		go func() {
			err := c.execute()
			d.mu.Lock()
			defer d.mu.Unlock()
			d.complete(q, c, err)
		}()
	}
}

// events numbers the events of all devices, so that no two have the same.
var events atomic.Uint64

// enqueue gives the command an event and its place in the queue.
func (d *device) enqueue(h driver.Handle, wait []driver.Event, c *command) (driver.Event, error) {
	hesitate()
	if err := d.faults.hit("enqueue", &d.faults.late, driver.ErrOutOfMemory); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.live(h)
	c.ev = &event{q: q}
	for _, w := range wait {
		c.wait = append(c.wait, d.event(w))
	}
	var uses []*mem
	for _, m := range c.uses {
		m.check(c.what)
		if m.base.mapped != nil && !c.host {
			return 0, fault(c.what, "the object is mapped", nil)
		}
	}
	for _, m := range c.uses {
		if !slices.ContainsFunc(uses, func(o *mem) bool { return o.base == m.base }) {
			uses = append(uses, m)
			m.base.pending++
		}
	}
	slices.SortFunc(uses, func(a, b *mem) int { return int(a.base.number) - int(b.base.number) })
	c.uses = uses
	id := driver.Event(events.Add(1))
	d.events[id] = c.ev
	q.issued++
	c.number = q.issued
	q.pending = append(q.pending, c)
	return id, nil
}

// live returns a queue that was not released; mu is held.
func (d *device) live(h driver.Handle) *queue {
	q := h.(*queue)
	if q.released {
		panic("fake: a queue is used after its release")
	}
	return q
}

// event finds an event; mu is held. One that was released, or is another device's, is
// a fault of the caller: a real API crashes.
func (d *device) event(id driver.Event) *event {
	e := d.events[id]
	if e == nil {
		panic(fmt.Sprintf("fake: event %d was released, or is of another device", id))
	}
	return e
}
