package opencl

import (
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
func (h *handler) place(m *wire.Request) (p place) {
	p.m, p.form = next[*mem](h, m), m.U32()
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

// inside reports whether the place lies within the object. Each number is at most 1<<62.
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

// insideBox reports whether rows lie within a number of bytes.
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

// holding says what a command uses, and keeps that until the command, which may be kept back,
// is issued.
func (c *command) holding(list ...use) {
	c.uses = list
	for _, u := range list {
		u.m.hold()
	}
	c.release = func() {
		for _, u := range list {
			u.m.letGo()
		}
	}
}
