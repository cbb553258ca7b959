package opencl

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// place is where the bytes of a command lie in a memory object.
type place struct {
	m              *mem
	form           uint32
	origin, region [3]int
	row, slice     int // pitches in bytes, of rows
}

// place reads one and checks that it lies within its object.
func (l *lane) place(m *wire.Request) (p place) {
	p.m, p.form = taken[*mem](l, m), m.U32()
	for i := range p.origin {
		p.origin[i] = m.Size()
	}
	for i := range p.region {
		p.region[i] = m.Size()
	}
	p.row, p.slice = m.Size(), m.Size()
	m.Check(m.Bad() || p.inside(), "a place outside its object")
	return p
}

// inside says whether the place lies within the object. Each number is at most 1<<62.
func (p *place) inside() bool {
	for i := range p.origin {
		if p.region[i] < 1 {
			return false
		}
	}
	if p.form == wire.Pixels {
		if p.m.imgs == nil {
			return false
		}
		whole := p.m.imgs[0].Whole().Size
		for i := range p.origin {
			if p.origin[i] > whole[i] || p.region[i] > whole[i]-p.origin[i] {
				return false
			}
		}
		return true
	}
	if p.m.bufs == nil {
		return false
	}
	size := p.m.bytes()
	if p.form == wire.Linear {
		return p.origin[0] <= size && p.region[0] <= size-p.origin[0] && p.region[1] == 1 && p.region[2] == 1
	}
	return p.form == wire.Rect && p.insideBox(size)
}

// insideBox says whether rows lie within so many bytes.
func (p *place) insideBox(size int) bool {
	if p.row < p.region[0] || p.region[1] > size || p.region[2] > size {
		return false
	}
	// the last byte, step by step, each within size
	end := 0
	for _, step := range [][2]int{{p.origin[2] + p.region[2] - 1, p.slice}, {p.origin[1] + p.region[1] - 1, p.row},
		{p.origin[0] + p.region[0], 1}} {
		if step[0] < 0 || step[1] < 1 || step[0] > (size-end)/step[1] {
			return false
		}
		end += step[0] * step[1]
	}
	return p.slice >= p.row*p.region[1]
}

// bytes is how many bytes lie there.
func (p *place) bytes() int {
	n := p.region[0] * p.region[1] * p.region[2]
	if p.form == wire.Pixels {
		n *= p.m.pixel
	}
	return n
}

func (p *place) pixels() gpustate.Region { return gpustate.Region{Origin: p.origin, Size: p.region} }

// layout is where the rows of a place begin.
func (p *place) layout() gpustate.Layout {
	return gpustate.Layout{Off: p.origin[0], Row: p.row, Slice: p.slice}.At(0, p.origin[1], p.origin[2])
}

func (p *place) box() gpustate.Box { return gpustate.Box(p.region) }

// move issues the transfer of a place's bytes.
func (p *place) move(to *queue, b []byte, write bool, after []*gpustate.Event) (*gpustate.Event, error) {
	q := to.q
	if p.form == wire.Pixels {
		img := p.m.imgs[to.at]
		if write {
			return q.WriteImageAsync(img, p.pixels(), b, after...)
		}
		return q.ReadImageAsync(img, p.pixels(), b, after...)
	}
	buf := p.m.bufs[to.at]
	switch {
	case p.form == wire.Rect && write:
		return q.WriteRectAsync(buf, p.layout(), p.box(), b, gpustate.Layout{}, after...)
	case p.form == wire.Rect:
		return q.ReadRectAsync(buf, p.layout(), p.box(), b, gpustate.Layout{}, after...)
	case write:
		return q.WriteAsync(buf, p.origin[0], b, after...)
	}
	return q.ReadAsync(buf, p.origin[0], b, after...)
}

// parts are what a command of one part consists of.
func parts(e *gpustate.Event, err error) ([]*gpustate.Event, error) {
	if err != nil {
		return nil, err
	}
	return []*gpustate.Event{e}, nil
}

// holding says what a command uses, and keeps that until the command, which may be kept back,
// is issued.
func (c *command) holding(list ...use) {
	c.uses = list
	for _, u := range list {
		u.m.hold()
	}
	c.over = func() {
		for _, u := range list {
			u.m.letGo()
		}
	}
}

// errBulk says that a request of the ring has bytes behind it, which only a lane can have.
var errBulk = fmt.Errorf("%w: bytes behind a request of the ring", wire.ErrProtocol)

// shared carries out a transfer whose bytes lie in shared memory; false: they do not.
func (l *lane) shared(m *wire.Request, write bool, flags uint32, q *queue, e *event, deps []*event, p place) (*reply,
	bool,
	error) {
	switch {
	case m.Bad() || flags&(wire.InArea|wire.InSlots) == 0 && l.conn != nil:
		return nil, false, nil
	case flags&wire.InArea != 0 && m.Bulk == 0:
		r, err := l.direct(m, write, flags, q, e, deps, p)
		return r, true, err
	case flags&wire.InSlots != 0 && m.Bulk == 0:
		r, err := l.throughSlots(m, write, flags, q, e, deps, p)
		return r, true, err
	}
	return nil, true, errBulk
}

func (l *lane) read(m *wire.Request) (*reply, error) {
	q, e, deps, flags := l.command(m)
	p := l.place(m)
	if r, shared, err := l.shared(m, false, flags, q, e, deps, p); shared {
		return r, err
	}
	if err := m.End(); err != nil {
		return nil, err
	}
	b := make([]byte, p.bytes())
	c := &command{event: e, deps: deps}
	c.holding(use{m: p.m})
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) { return parts(p.move(q, b, false, after)) }
	if err := q.enqueue(c); err != nil {
		return failed(err)
	}
	if flags&wire.Blocking == 0 {
		l.deliver(&delivery{event: e, bytes: b})
		return done, nil
	}
	r := &reply{settle: true}
	if err := l.wait(e); err != nil {
		r.status = codeOf(err)
		return r, nil
	}
	r.bulk = b
	return r, nil
}

func (l *lane) write(m *wire.Request) (*reply, error) {
	q, e, deps, flags := l.command(m)
	p := l.place(m)
	if r, shared, err := l.shared(m, true, flags, q, e, deps, p); shared {
		return r, err
	}
	m.Check(m.Bad() || m.Bulk == uint64(p.bytes()), "the bytes of a write")
	if err := m.End(); err != nil {
		return nil, err
	}
	b, err := l.bulk(m.Bulk)
	if err != nil {
		return nil, err
	}
	c := &command{event: e, deps: deps}
	c.holding(use{p.m, true})
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) { return parts(p.move(q, b, true, after)) }
	if err := q.enqueue(c); err != nil {
		return failed(err)
	}
	if flags&wire.Blocking == 0 {
		return done, nil
	}
	return l.whenComplete(e), nil
}

func (l *lane) copy(m *wire.Request) (*reply, error) {
	q, e, deps, _ := l.command(m)
	from, to := l.place(m), l.place(m)
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
	return l.enqueue(q, c)
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

func (l *lane) fill(m *wire.Request) (*reply, error) {
	q, e, deps, _ := l.command(m)
	p, pattern := l.place(m), m.Bytes()
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
	return l.enqueue(q, c)
}

// fits says whether a range can be filled with a pattern.
func fits(pattern []byte, p *place) bool {
	n := len(pattern)
	return p.form == wire.Linear && n > 0 && n <= 128 && n&(n-1) == 0 && p.origin[0]%n == 0 && p.region[0]%n == 0
}
