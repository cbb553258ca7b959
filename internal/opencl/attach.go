package opencl

import (
	"fmt"
	"net"
	"os"
	"slices"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// nowhere is the connection of a request that was answered before.
type nowhere struct{ net.Conn }

// attach makes a program's objects again, under their numbers, on devices of this process. files are the ring, the
// connections and the areas. No request is carried out.
func (s *Server) attach(w *world, from *contents, files []*os.File) (err error) {
	if len(files) < 1+len(w.Areas) {
		return errKept
	}
	s.program, s.pid = w.Program, w.PID
	s.resumed = true
	s.deliveries.Store(w.Deliveries)
	if err := s.devices.begin(s.opt.Select, s.opt.One, w.Program, w.PID); err != nil {
		return err
	}
	s.devices.spread(w.Devices, w.Used)
	if s.ring, err = newRing(files[0]); err != nil {
		return err
	}
	s.ring.file = files[0]
	s.ring.in.Begin(w.Ring)
	for i, a := range w.Areas {
		s.areas.last = a.Number - 1
		if err := s.areas.add(files[1+i]); err != nil {
			return err
		}
	}
	s.areas.last = w.LastArea
	for _, f := range files[1+len(w.Areas):] {
		if _, err := s.connections.add(f); err != nil {
			return err
		}
		_ = f.Close() // the connection has its own
	}
	return s.restoreWorld(w, from)
}

func (s *Server) restoreWorld(w *world, from *contents) error {
	h := &handler{Server: s, conn: nowhere{}}
	for i := range w.Objects {
		o := &w.Objects[i]
		if err := h.makeAgain(o, from); err != nil {
			return fmt.Errorf("object %d: %w", o.ID, err)
		}
	}
	for _, p := range w.Programs {
		if err := h.buildAgain(p); err != nil {
			return fmt.Errorf("program %d: %w", p.ID, err)
		}
	}
	for _, k := range w.Kernels {
		if err := h.kernelAgain(k); err != nil {
			return fmt.Errorf("kernel %s: %w", k.Name, err)
		}
	}
	all := s.devices.all()
	for _, e := range w.Events {
		o := newEvent(e.ID, nil)
		if e.Device >= 0 {
			if e.Device >= len(all) {
				return errKept
			}
			o.dev = all[e.Device]
		}
		if e.Set {
			o.before = e.Times
			o.issue(before(e.Status))
		}
		if err := s.addEvent(o); err != nil {
			return err
		}
	}
	for _, a := range w.Areas {
		for _, n := range a.Devices {
			s.shareAgain(a.Number, all[n])
		}
	}
	return nil
}

// before returns the error that something had before the program was resumed.
func before(status int32) error {
	if status == clSuccess {
		return nil
	}
	return coded(status, fmt.Sprintf("error %d, from before the program was paused", status))
}

// makeAgain carries out again the request that made an object, and gives it its contents.
func (h *handler) makeAgain(o *keptObject, from *contents) error {
	do := operations.of(o.Op)
	if do == nil {
		return errKept
	}
	r, err := do(h, &wire.Request{Op: o.Op, Body: o.Body})
	if err != nil {
		return err
	}
	if r.status != clSuccess {
		return refused(r)
	}
	switch made := h.objects[o.ID].(type) {
	case *queue:
		made.failed = before(o.Failed)
		if o.Barrier != clSuccess {
			made.barrier = issuedEvent(0, made.dev, nil, before(o.Barrier))
		}
	case *mem:
		for off := 0; off < o.Bytes; {
			b, err := from.next(o, off, made.imgs != nil)
			if err == nil {
				err = made.initialize(off, b)
			}
			if err != nil {
				return err
			}
			off += len(b)
		}
	}
	return nil
}

// refused returns the error of a reply.
func refused(r *reply) error {
	m := &wire.Request{Body: r.body}
	return coded(r.status, fmt.Sprintf("%s (error %d of OpenCL)", m.Bytes(), r.status))
}

func (h *handler) buildAgain(p keptProgram) error {
	c, err := find[*clContext](h.Server, p.Context)
	if err != nil {
		return err
	}
	o := newProgram(c)
	for i, t := range p.Builds {
		if i < 0 || i >= len(c.open) {
			return errKept
		}
		if o.on[i], _, err = buildOn(c.open[i], t.Source, t.Options); err != nil {
			return err
		}
		o.texts[i] = t
	}
	return h.enter(nil, p.ID, o)
}

func (h *handler) kernelAgain(k keptKernel) error {
	p, err := find[*program](h.Server, k.Program)
	if err != nil {
		return err
	}
	o, _, err := p.newKernel(k.Name)
	if err != nil {
		return err
	}
	if len(k.Args) != o.count {
		return fmt.Errorf("it has %d arguments there, and had %d", o.count, len(k.Args))
	}
	if err := h.setArgs(o, k.Args); err != nil {
		return err
	}
	return h.enter(nil, k.ID, o)
}

// setArgs gives a kernel the arguments that it had.
func (h *handler) setArgs(k *kernel, args []keptArg) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, a := range args {
		if a.Kind != 0 {
			v, err := h.argument(a)
			if err == nil {
				err = k.set(i, v)
			}
			if err != nil {
				return fmt.Errorf("argument %d: %w", i, err)
			}
		}
		k.refused[i] = before(a.Refused)
	}
	return nil
}

// shareAgain lets a device know an area. Without it transfers take longer.
func (s *Server) shareAgain(number uint64, d *device) {
	dev, err := s.devices.use(d)
	if err != nil {
		return
	}
	a := s.areas.list[number]
	if end, err := dev.ShareMemory(a.file, a.bytes); err == nil {
		a.ends, a.known = append(a.ends, end), append(a.known, d)
	}
}

// begin carries out again the requests that were not over, and serves from then on.
func (s *Server) begin(w *world) error {
	list := s.connections.all()
	answered := make([]bool, len(list))
	final := map[uint64][]keptArg{}
	for _, k := range w.Kernels {
		final[k.ID] = k.Args
	}
	s.ring.mu.Lock()
	defer s.ring.mu.Unlock()
	h := &handler{Server: s, conn: nowhere{}, unasked: true}
	for _, r := range w.Requests {
		o := &owed{op: r.Op, body: r.Body, bulk: r.Bulk, slot: r.Slot}
		if r.Kernel != 0 {
			k, err := find[*kernel](s, r.Kernel)
			if err == nil {
				err = h.setArgs(k, r.Args)
			}
			if err != nil {
				return err
			}
		}
		var err error
		switch {
		case r.Connection >= 0 && r.Connection < len(list):
			answered[r.Connection] = true
			err = s.beginAnswer(list[r.Connection], o)
		case r.Waits:
			err = s.carryOutOfRing(o.request())
		default:
			h.again = o.bulk
			_, _, err = h.carryOut(o.request())
		}
		if err == nil && r.Kernel != 0 {
			k, _ := find[*kernel](s, r.Kernel) // it was found before
			err = h.setArgs(k, final[r.Kernel])
		}
		if err != nil {
			return err
		}
	}
	s.letGo(w)
	for i, c := range list {
		if !answered[i] {
			s.tasks.Go(func() { s.serve(c, nil) })
		}
	}
	s.tasks.Go(s.serveRing)
	return nil
}

// beginAnswer carries out again a request that a connection waits for, and serves the connection when it is answered.
func (s *Server) beginAnswer(c *connection, o *owed) error {
	h := &handler{Server: s, conn: c, again: o.bulk}
	r, now, err := h.carryOut(o.request())
	if err != nil {
		return err
	}
	if now == nil { // the next pause has to wait for the reply
		now = &owed{reply: true, told: &atomic.Bool{}}
		s.held.add(now)
	}
	s.tasks.Go(func() { s.serve(c, func() error { return h.reply(r, now) }) })
	return nil
}

// letGo releases objects that only commands need.
func (s *Server) letGo(w *world) {
	h := &handler{Server: s, conn: nowhere{}}
	for _, id := range w.Released {
		var body reply
		body.u64(id)
		_, _ = h.release(&wire.Request{Op: wire.OpRelease, Body: body.body}) // the program has released it before
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range w.Forgotten {
		if e := s.events[id]; e != nil {
			e.forgotten.Store(true)
			delete(s.events, id)
		}
	}
}

// spread gives each number that the program knows a device: the one of that number, or, where there are fewer, those
// that there are in turn, to the devices that it uses first.
func (d *devices) spread(count int, used []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := d.list
	if len(found) == 0 || len(found) >= count {
		return
	}
	d.list = make([]*device, count)
	for i := range d.list {
		turn := i
		if at := slices.Index(used, i); at >= 0 {
			turn = at
		}
		one := found[turn%len(found)]
		d.list[i] = &device{info: one.info, sel: one.sel}
	}
}
