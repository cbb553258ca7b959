package opencl

import (
	"fmt"

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
func (l *lane) share(m *wire.Request) (*reply, error) {
	number := m.U64()
	a, d := l.area(m, number), l.devices.next(m)
	if err := m.End(); err != nil {
		return nil, err
	}
	dev, err := l.devices.use(d)
	if err != nil {
		return failed(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bytes == nil || len(a.ends) >= wire.MaxLanes {
		return nil, fmt.Errorf("%w: area %d", wire.ErrProtocol, number)
	}
	end, err := dev.ShareMemory(a.file, a.bytes)
	if err != nil {
		return failed(err)
	}
	a.ends = append(a.ends, end)
	return done, nil
}

// unshare ends an area when the commands that use it are complete.
func (l *lane) unshare(m *wire.Request) (*reply, error) {
	number := m.U64()
	a := l.area(m, number)
	if err := m.End(); err != nil {
		return nil, err
	}
	l.areas.mu.Lock()
	delete(l.areas.list, number)
	l.areas.mu.Unlock()
	l.lanes.Go(func() {
		a.settle(l.Server)
		select {
		case <-l.ended: // the device is closed before its memory goes
			l.areas.mu.Lock()
			l.areas.list[number] = a
			l.areas.mu.Unlock()
		default:
			a.forget()
		}
	})
	return done, nil
}

// settleArea answers when the commands that use an area are complete.
func (l *lane) settleArea(m *wire.Request) (*reply, error) {
	a := l.area(m, m.U64())
	if err := m.End(); err != nil {
		return nil, err
	}
	return &reply{later: func(*reply) { a.settle(l.Server) }}, nil
}

// settle returns when the commands that use the area are complete.
func (a *area) settle(s *Server) {
	a.mu.Lock()
	list := a.users
	a.mu.Unlock()
	for _, e := range list {
		_ = s.wait(e) // its event has the error
	}
}

// host reads one and checks that the bytes of a place lie within it.
func (l *lane) host(m *wire.Request, p *place) (h host) {
	number := m.U64()
	h.off, h.row, h.slice = m.Size(), m.Size(), m.Size()
	if h.area = l.area(m, number); h.area == nil {
		return h
	}
	size := len(h.area.bytes)
	if h.row == 0 && h.slice == 0 {
		m.Check(h.off <= size && p.bytes() <= size-h.off, "a transfer outside of its area")
		return h
	}
	box := place{form: wire.Rect, region: p.region, row: h.row, slice: h.slice, m: p.m}
	box.origin[0] = h.off
	m.Check(p.form == wire.Rect && box.insideBox(size), "a box outside of its area")
	return h
}

// moveDirect issues the transfer between a place and an area.
func (p *place) moveDirect(q *queue, h host, write bool, after []*gpustate.Event) (*gpustate.Event, error) {
	if h.row == 0 && h.slice == 0 {
		return p.move(q, h.area.bytes[h.off:h.off+p.bytes()], write, after)
	}
	at := gpustate.Layout{Off: h.off, Row: h.row, Slice: h.slice}
	if write {
		return q.q.WriteRectAsync(p.m.bufs[q.at], p.layout(), p.box(), h.area.bytes, at, after...)
	}
	return q.q.ReadRectAsync(p.m.bufs[q.at], p.layout(), p.box(), h.area.bytes, at, after...)
}

// direct carries out a READ or WRITE between an object and an area.
func (l *lane) direct(m *wire.Request, write bool, flags uint32, q *queue, e *event, deps []*event,
	p place) (*reply, error) {
	h := l.host(m, &p)
	m.Check(flags&wire.Tell == 0 || flags&wire.Blocking == 0 && e.id != 0, "flags of a transfer")
	if err := m.End(); err != nil {
		return nil, err
	}
	c := &command{event: e, deps: deps}
	c.holding(use{p.m, write})
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) {
		return parts(p.moveDirect(q, h, write, after))
	}
	h.area.use(e)
	err := q.enqueue(c)
	if flags&wire.Tell != 0 && (err == nil || l.unasked) {
		l.deliver(&delivery{event: e})
	}
	if err != nil {
		if l.unasked && flags&wire.Unseen != 0 {
			q.fail(err)
		}
		return l.outcome(q, e.id, err)
	}
	if flags&wire.Blocking == 0 {
		return done, nil
	}
	return l.whenComplete(e), nil
}

// whenComplete is the reply of a call that waits for its command.
func (l *lane) whenComplete(e *event) *reply {
	return &reply{settle: true, later: func(r *reply) { r.status = codeOf(l.wait(e)) }}
}
