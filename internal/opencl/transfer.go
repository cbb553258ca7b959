package opencl

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// Forms of places.
const (
	formLinear = 0 // a range: origin[0] and region[0] in bytes
	formRect   = 1 // rows of a buffer: region[0] and origin[0] in bytes
	formPixels = 2 // a box of an image
)

// place is where the bytes of a command lie in a memory object.
type place struct {
	m              *mem
	form           uint32
	origin, region [3]int
	row, slice     int // pitches in bytes, of rows
}

// place reads one and checks that it lies within its object.
func (l *lane) place(m *request) (p place, err error) {
	id := m.u64()
	p.form = m.u32()
	for i := range p.origin {
		p.origin[i] = m.size()
	}
	for i := range p.region {
		p.region[i] = m.size()
	}
	p.row, p.slice = m.size(), m.size()
	if m.bad {
		return p, errProtocol
	}
	if p.m, err = find[*mem](l.Server, id); err != nil {
		return p, err
	}
	if !p.inside() {
		return p, fmt.Errorf("%w: a place outside its object", errProtocol)
	}
	return p, nil
}

// inside says whether the place lies within the object. Each number is at most 1<<62.
func (p *place) inside() bool {
	for i := range p.origin {
		if p.region[i] < 1 {
			return false
		}
	}
	if p.form == formPixels {
		if p.m.img == nil {
			return false
		}
		whole := p.m.img.Whole().Size
		for i := range p.origin {
			if p.origin[i] > whole[i] || p.region[i] > whole[i]-p.origin[i] {
				return false
			}
		}
		return true
	}
	if p.m.buf == nil {
		return false
	}
	size := p.m.bytes()
	if p.form == formLinear {
		return p.origin[0] <= size && p.region[0] <= size-p.origin[0] && p.region[1] == 1 && p.region[2] == 1
	}
	if p.form != formRect || p.row < p.region[0] || p.region[1] > size || p.region[2] > size {
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
	if p.form == formPixels {
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
func (p *place) move(q *gpustate.Queue, b []byte, write bool, after []*gpustate.Event) (*gpustate.Event, error) {
	switch {
	case p.form == formPixels && write:
		return q.WriteImageAsync(p.m.img, p.pixels(), b, after...)
	case p.form == formPixels:
		return q.ReadImageAsync(p.m.img, p.pixels(), b, after...)
	case p.form == formRect && write:
		return q.WriteRectAsync(p.m.buf, p.layout(), p.box(), b, gpustate.Layout{}, after...)
	case p.form == formRect:
		return q.ReadRectAsync(p.m.buf, p.layout(), p.box(), b, gpustate.Layout{}, after...)
	case write:
		return q.WriteAsync(p.m.buf, p.origin[0], b, after...)
	}
	return q.ReadAsync(p.m.buf, p.origin[0], b, after...)
}

// parts are what a command of one part consists of.
func parts(e *gpustate.Event, err error) ([]*gpustate.Event, error) {
	if err != nil {
		return nil, err
	}
	return []*gpustate.Event{e}, nil
}

// holding keeps objects until a command that may be kept back is issued.
func (c *command) holding(list ...*mem) {
	for _, m := range list {
		m.hold()
	}
	c.over = func() {
		for _, m := range list {
			m.letGo()
		}
	}
}

const flagBlocking = 1

func (l *lane) read(m *request) (*reply, error) {
	q, e, deps, err := l.command(m)
	if err != nil {
		return nil, err
	}
	flags := m.u32()
	p, err := l.place(m)
	if err == nil {
		err = m.end()
	}
	if err != nil {
		return nil, err
	}
	b := make([]byte, p.bytes())
	c := &command{event: e, deps: deps}
	c.holding(p.m)
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) { return parts(p.move(q.q, b, false, after)) }
	if err := q.enqueue(c); err != nil {
		return failed(err)
	}
	if flags&flagBlocking == 0 {
		l.deliver(&delivery{event: e, bytes: b})
		return &reply{}, nil
	}
	r := &reply{settle: true}
	if err := e.wait(l.ended); err != nil {
		r.status = codeOf(err)
		return r, nil
	}
	r.bulk = b
	return r, nil
}

func (l *lane) write(m *request) (*reply, error) {
	q, e, deps, err := l.command(m)
	if err != nil {
		return nil, err
	}
	flags := m.u32()
	p, err := l.place(m)
	if err == nil {
		err = m.end()
	}
	if err != nil {
		return nil, err
	}
	if m.bulk != uint64(p.bytes()) {
		return nil, errProtocol
	}
	b, err := l.bulk(m.bulk)
	if err != nil {
		return nil, err
	}
	c := &command{event: e, deps: deps}
	c.holding(p.m)
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) { return parts(p.move(q.q, b, true, after)) }
	if err := q.enqueue(c); err != nil {
		return failed(err)
	}
	if flags&flagBlocking == 0 {
		return &reply{}, nil
	}
	r := &reply{settle: true}
	r.status = codeOf(e.wait(l.ended))
	return r, nil
}

func (l *lane) copy(m *request) (*reply, error) {
	q, e, deps, err := l.command(m)
	if err != nil {
		return nil, err
	}
	_ = m.u32() // flags
	from, err := l.place(m)
	if err != nil {
		return nil, err
	}
	to, err := l.place(m)
	if err == nil {
		err = m.end()
	}
	if err != nil {
		return nil, err
	}
	if from.bytes() != to.bytes() || from.form == to.form && from.region != to.region ||
		from.form != to.form && (from.form == formRect || to.form == formRect) {
		return nil, errProtocol
	}
	c := &command{event: e, deps: deps}
	c.holding(from.m, to.m)
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) {
		return parts(copyPlace(q.q, &from, &to, after))
	}
	return l.enqueue(q, c)
}

// copyPlace copies within the device. A range is packed pixels where the other side has
// pixels; rows and ranges do not meet, which the caller has checked.
func copyPlace(q *gpustate.Queue, from, to *place, after []*gpustate.Event) (*gpustate.Event, error) {
	switch {
	case from.form == formPixels && to.form == formPixels:
		return q.CopyImage(to.m.img, to.origin, from.m.img, from.pixels(), after...)
	case from.form == formPixels:
		return q.CopyFromImage(to.m.buf, to.origin[0], from.m.img, from.pixels(), after...)
	case to.form == formPixels:
		return q.CopyToImage(to.m.img, to.pixels(), from.m.buf, from.origin[0], after...)
	case from.form == formRect:
		return q.CopyRect(to.m.buf, to.layout(), from.m.buf, from.layout(), from.box(), after...)
	}
	return q.Copy(to.m.buf, to.origin[0], from.m.buf, from.origin[0], from.region[0], after...)
}

func (l *lane) fill(m *request) (*reply, error) {
	q, e, deps, err := l.command(m)
	if err != nil {
		return nil, err
	}
	_ = m.u32() // flags
	p, err := l.place(m)
	pattern := m.bytes()
	if err == nil {
		err = m.end()
	}
	if err != nil {
		return nil, err
	}
	var color gpustate.Color
	if pixels := p.form == formPixels; pixels && len(pattern) != len(color) || !pixels && !fits(pattern, &p) {
		return nil, errProtocol
	}
	copy(color[:], pattern)
	c := &command{event: e, deps: deps}
	c.holding(p.m)
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) {
		if p.form == formPixels {
			return parts(q.q.FillImage(p.m.img, p.pixels(), color, after...))
		}
		return parts(q.q.Fill(p.m.buf, p.origin[0], p.region[0], pattern, after...))
	}
	return l.enqueue(q, c)
}

// fits says whether a range can be filled with a pattern.
func fits(pattern []byte, p *place) bool {
	n := len(pattern)
	return p.form == formLinear && n > 0 && n <= 128 && n&(n-1) == 0 && p.origin[0]%n == 0 && p.region[0]%n == 0
}
