package opencl

import (
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// errBulk: a request of the ring is followed by bytes, which only one of a connection may be.
var errBulk = fmt.Errorf("%w: bytes behind a request of the ring", wire.ErrProtocol)

// transfer is a READ or a WRITE.
type transfer struct {
	queue *queue
	event *event
	deps  []*event
	flags uint32
	place place
	write bool
}

func (h *handler) read(m *wire.Request) (*reply, error)  { return h.transfer(m, false) }
func (h *handler) write(m *wire.Request) (*reply, error) { return h.transfer(m, true) }

// transfer carries out a READ or a WRITE, whose bytes lie in an area, pass through slots, or follow the request.
func (h *handler) transfer(m *wire.Request, write bool) (*reply, error) {
	t := &transfer{write: write}
	t.queue, t.event, t.deps, t.flags = h.command(m)
	t.place = h.place(m)
	switch inArea, inSlots := t.flags&wire.InArea != 0, t.flags&wire.InSlots != 0; {
	case m.Bad():
		return nil, m.End()
	case !inArea && !inSlots && h.conn != nil:
		return h.throughConnection(m, t)
	case inArea && m.Bulk == 0:
		return h.direct(m, t)
	case inSlots && m.Bulk == 0:
		return h.throughSlots(m, t)
	}
	return nil, errBulk
}

// command makes a command of a transfer.
func (t *transfer) command(run func(after []*gpustate.Event) ([]*gpustate.Event, error)) *command {
	c := &command{event: t.event, deps: t.deps, run: run}
	c.holding(use{t.place.m, t.write})
	return c
}

// throughConnection carries out a transfer whose bytes follow the request, or the reply.
func (h *handler) throughConnection(m *wire.Request, t *transfer) (*reply, error) {
	m.Check(!t.write || m.Bulk == uint64(t.place.bytes()), "the bytes of a write")
	if err := m.End(); err != nil {
		return nil, err
	}
	var b []byte
	if t.write {
		var err error
		if b, err = h.bulk(m.Bulk); err != nil {
			return nil, err
		}
	} else {
		b = make([]byte, t.place.bytes())
	}
	c := t.command(func(after []*gpustate.Event) ([]*gpustate.Event, error) {
		return parts(t.place.move(t.queue, b, t.write, after))
	})
	if err := t.queue.enqueue(c); err != nil {
		return failed(err)
	}
	switch {
	case t.flags&wire.Blocking == 0 && !t.write:
		h.deliver(&delivery{event: t.event, bytes: b})
		return done, nil
	case t.flags&wire.Blocking == 0:
		return done, nil
	case t.write:
		return h.whenComplete(t.event), nil
	}
	return &reply{deliver: true, wait: func(r *reply) {
		if r.status = codeOf(h.wait(t.event)); r.status == clSuccess {
			r.bulk = b
		}
	}}, nil
}

func (h *handler) copy(m *wire.Request) (*reply, error) {
	q, e, deps, _ := h.command(m)
	from, to := h.place(m), h.place(m)
	m.Check(m.Bad() || from.bytes() == to.bytes() && (from.form != to.form || from.region == to.region) &&
		(from.form == to.form || from.form != wire.Rect && to.form != wire.Rect), "places of a copy")
	if err := m.End(); err != nil {
		return nil, err
	}
	c := &command{event: e, deps: deps}
	c.holding(use{m: from.m}, use{to.m, true})
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) {
		return parts(copyPlace(q, &from, &to, after))
	}
	return h.enqueue(q, c)
}

// copyPlace copies within the device. A range is packed pixels where the other side has
// pixels; rows and ranges do not meet, which the caller has checked.
func copyPlace(on *queue, from, to *place, after []*gpustate.Event) (*gpustate.Event, error) {
	q, i := on.q, on.at
	switch {
	case from.form == wire.Pixels && to.form == wire.Pixels:
		return q.CopyImage(to.m.imgs[i], to.origin, from.m.imgs[i], from.pixels(), after...)
	case from.form == wire.Pixels:
		return q.CopyFromImage(to.m.bufs[i], to.origin[0], from.m.imgs[i], from.pixels(), after...)
	case to.form == wire.Pixels:
		return q.CopyToImage(to.m.imgs[i], to.pixels(), from.m.bufs[i], from.origin[0], after...)
	case from.form == wire.Rect:
		return q.CopyRect(to.m.bufs[i], to.layout(), from.m.bufs[i], from.layout(), from.box(), after...)
	}
	return q.Copy(to.m.bufs[i], to.origin[0], from.m.bufs[i], from.origin[0], from.region[0], after...)
}

func (h *handler) fill(m *wire.Request) (*reply, error) {
	q, e, deps, _ := h.command(m)
	p, pattern := h.place(m), m.Bytes()
	var color gpustate.Color
	m.Check(p.form == wire.Pixels && len(pattern) == len(color) || fits(pattern, &p), "the pattern of a fill")
	if err := m.End(); err != nil {
		return nil, err
	}
	copy(color[:], pattern)
	c := &command{event: e, deps: deps}
	c.holding(use{p.m, true})
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) {
		if p.form == wire.Pixels {
			return parts(q.q.FillImage(p.m.imgs[q.at], p.pixels(), color, after...))
		}
		return parts(q.q.Fill(p.m.bufs[q.at], p.origin[0], p.region[0], pattern, after...))
	}
	return h.enqueue(q, c)
}

// fits reports whether a range can be filled with a pattern.
func fits(pattern []byte, p *place) bool {
	n := len(pattern)
	return p.form == wire.Linear && n > 0 && n <= 128 && n&(n-1) == 0 && p.origin[0]%n == 0 && p.region[0]%n == 0
}

// host is where the bytes of a transfer lie in an area.
type host struct {
	area       *area
	off        int
	row, slice int // pitches, 0: packed
}

// share lets a device know an area, so that it moves bytes without a copy.
func (h *handler) share(m *wire.Request) (*reply, error) {
	number := m.U64()
	a, d := h.area(m, number), h.devices.next(m)
	if err := m.End(); err != nil {
		return nil, err
	}
	dev, err := h.devices.use(d)
	if err != nil {
		return failed(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bytes == nil || len(a.ends) >= wire.MaxConnections {
		return nil, fmt.Errorf("%w: area %d", wire.ErrProtocol, number)
	}
	end, err := dev.ShareMemory(a.file, a.bytes)
	if err != nil {
		return failed(err)
	}
	a.ends, a.known = append(a.ends, end), append(a.known, d)
	return done, nil
}

// unshare ends an area when the commands that use it are complete.
func (h *handler) unshare(m *wire.Request) (*reply, error) {
	number := m.U64()
	a := h.area(m, number)
	if err := m.End(); err != nil {
		return nil, err
	}
	h.areas.mu.Lock()
	delete(h.areas.list, number)
	h.areas.mu.Unlock()
	h.now.area = a
	over := h.owe(a.kept)
	h.tasks.Go(func() {
		defer over()
		a.waitUsers(h.Server)
		select {
		case <-h.ended: // the device is closed before its memory goes
			h.areas.mu.Lock()
			h.areas.list[number] = a
			h.areas.mu.Unlock()
		default:
			a.forget()
		}
	})
	return done, nil
}

// areaWait answers when the commands that use an area are complete.
func (h *handler) areaWait(m *wire.Request) (*reply, error) {
	a := h.area(m, m.U64())
	if err := m.End(); err != nil {
		return nil, err
	}
	return &reply{stuck: a.kept, wait: func(*reply) { a.waitUsers(h.Server) }}, nil
}

// kept reports whether a command that uses the area is not issued.
func (a *area) kept() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return anyKept(a.users)
}

// waitUsers returns when the commands that use the area are complete.
func (a *area) waitUsers(s *Server) {
	a.mu.Lock()
	list := slices.Clone(a.users)
	a.mu.Unlock()
	for _, e := range list {
		_ = s.wait(e) // its event has the error
	}
}

// host reads one and checks that the bytes of a place lie within it.
func (h *handler) host(m *wire.Request, p *place) (b host) {
	number := m.U64()
	b.off, b.row, b.slice = m.Size(), m.Size(), m.Size()
	if b.area = h.area(m, number); b.area == nil {
		return b
	}
	size := len(b.area.bytes)
	if b.row == 0 && b.slice == 0 {
		m.Check(b.off <= size && p.bytes() <= size-b.off, "a transfer outside of its area")
		return b
	}
	box := place{form: wire.Rect, region: p.region, row: b.row, slice: b.slice, m: p.m}
	box.origin[0] = b.off
	m.Check(p.form == wire.Rect && box.insideBox(size), "a box outside of its area")
	return b
}

// moveDirect issues the transfer between a place and an area.
func (p *place) moveDirect(q *queue, b host, write bool, after []*gpustate.Event) (*gpustate.Event, error) {
	if b.row == 0 && b.slice == 0 {
		return p.move(q, b.area.bytes[b.off:b.off+p.bytes()], write, after)
	}
	at := gpustate.Layout{Off: b.off, Row: b.row, Slice: b.slice}
	if write {
		return q.q.WriteRectAsync(p.m.bufs[q.at], p.layout(), p.box(), b.area.bytes, at, after...)
	}
	return q.q.ReadRectAsync(p.m.bufs[q.at], p.layout(), p.box(), b.area.bytes, at, after...)
}

// direct carries out a transfer between an object and an area.
func (h *handler) direct(m *wire.Request, t *transfer) (*reply, error) {
	b := h.host(m, &t.place)
	m.Check(t.flags&wire.Deliver == 0 || t.flags&wire.Blocking == 0 && t.event.id != 0, "flags of a transfer")
	if err := m.End(); err != nil {
		return nil, err
	}
	c := t.command(func(after []*gpustate.Event) ([]*gpustate.Event, error) {
		return parts(t.place.moveDirect(t.queue, b, t.write, after))
	})
	b.area.use(t.event)
	err := t.queue.enqueue(c)
	if t.flags&wire.Deliver != 0 && (err == nil || h.unasked) {
		h.deliver(&delivery{event: t.event})
	}
	if err != nil {
		if h.unasked && t.flags&wire.NoEvent != 0 {
			t.queue.fail(err)
		}
		return h.outcome(t.queue, t.event.id, err)
	}
	if t.flags&wire.Blocking == 0 {
		return done, nil
	}
	return h.whenComplete(t.event), nil
}

// whenComplete returns the reply of a call that waits for its command.
func (h *handler) whenComplete(e *event) *reply {
	return &reply{deliver: true, wait: func(r *reply) { r.status = codeOf(h.wait(e)) }}
}
