package opencl

import (
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

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

// direct carries out a READ or WRITE between an object and an area.
func (h *handler) direct(m *wire.Request, write bool, flags uint32, q *queue, e *event, deps []*event,
	p place) (*reply, error) {
	b := h.host(m, &p)
	m.Check(flags&wire.Deliver == 0 || flags&wire.Blocking == 0 && e.id != 0, "flags of a transfer")
	if err := m.End(); err != nil {
		return nil, err
	}
	c := &command{event: e, deps: deps}
	c.holding(use{p.m, write})
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) {
		return parts(p.moveDirect(q, b, write, after))
	}
	b.area.use(e)
	err := q.enqueue(c)
	if flags&wire.Deliver != 0 && (err == nil || h.unasked) {
		h.deliver(&delivery{event: e})
	}
	if err != nil {
		if h.unasked && flags&wire.NoEvent != 0 {
			q.fail(err)
		}
		return h.outcome(q, e.id, err)
	}
	if flags&wire.Blocking == 0 {
		return done, nil
	}
	return h.whenComplete(e), nil
}

// whenComplete is the reply of a call that waits for its command.
func (h *handler) whenComplete(e *event) *reply {
	return &reply{deliver: true, wait: func(r *reply) { r.status = codeOf(h.wait(e)) }}
}
