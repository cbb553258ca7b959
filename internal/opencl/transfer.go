package opencl

import (
	"bytes"
	"errors"
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

// run is bytes of a buffer that lie together, and where they are in what is packed.
type run struct{ off, at, n int }

// runs are the bytes of a place in a buffer.
func (p *place) runs() (list []run) {
	if p.form == formLinear {
		return []run{{p.origin[0], 0, p.region[0]}}
	}
	at := 0
	for z := range p.region[2] {
		for y := range p.region[1] {
			off := (p.origin[2]+z)*p.slice + (p.origin[1]+y)*p.row + p.origin[0]
			if n := len(list); n > 0 && list[n-1].off+list[n-1].n == off {
				list[n-1].n += p.region[0]
			} else {
				list = append(list, run{off, at, p.region[0]})
			}
			at += p.region[0]
		}
	}
	return list
}

func (p *place) box() gpustate.Region { return gpustate.Region{Origin: p.origin, Size: p.region} }

// move issues the transfer of a place's bytes. Those of images are complete when it returns.
func (p *place) move(q *queue, b []byte, write bool, after []*gpustate.Event) (list []*gpustate.Event, err error) {
	if p.form == formPixels {
		if write {
			return nil, q.q.WriteImage(p.m.img, p.box(), b)
		}
		return nil, q.q.ReadImage(p.m.img, p.box(), b)
	}
	for _, r := range p.runs() {
		var e *gpustate.Event
		if write {
			e, err = q.q.WriteAsync(p.m.buf, r.off, b[r.at:r.at+r.n], after...)
		} else {
			e, err = q.q.ReadAsync(p.m.buf, r.off, b[r.at:r.at+r.n], after...)
		}
		if err != nil {
			return nil, errors.Join(err, waitAll(list)) // b is in use until then
		}
		list = append(list, e)
	}
	return list, nil
}

func waitAll(list []*gpustate.Event) error {
	var errs []error
	for _, e := range list {
		errs = append(errs, e.Wait())
	}
	return errors.Join(errs...)
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
	c := &command{event: e, deps: deps, alone: p.form == formPixels}
	c.holding(p.m)
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) { return p.move(q, b, false, after) }
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
	c := &command{event: e, deps: deps, alone: p.form == formPixels}
	c.holding(p.m)
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) { return p.move(q, b, true, after) }
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
	if from.bytes() != to.bytes() {
		return nil, errProtocol
	}
	c := &command{event: e, deps: deps, alone: from.form == formPixels || to.form == formPixels}
	c.holding(from.m, to.m)
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) {
		if c.alone {
			return nil, throughHost(q, &from, &to)
		}
		return copyRuns(q, &from, &to, after)
	}
	return l.enqueue(q, c)
}

// throughHost copies by way of this process: what has pixels.
func throughHost(q *queue, from, to *place) error {
	b := make([]byte, from.bytes())
	for _, step := range []struct {
		p     *place
		write bool
	}{{from, false}, {to, true}} {
		list, err := step.p.move(q, b, step.write, nil)
		if err = errors.Join(err, waitAll(list)); err != nil {
			return err
		}
	}
	return nil
}

// copyRuns copies between buffers, run by run.
func copyRuns(q *queue, from, to *place, after []*gpustate.Event) (list []*gpustate.Event, err error) {
	src, dst := from.runs(), to.runs()
	for len(src) > 0 {
		n := min(src[0].n, dst[0].n)
		e, err := q.q.Copy(to.m.buf, dst[0].off, from.m.buf, src[0].off, n, after...)
		if err != nil {
			return nil, errors.Join(err, waitAll(list))
		}
		list = append(list, e)
		src, dst = advance(src, n), advance(dst, n)
	}
	return list, nil
}

// advance takes n bytes off the first run.
func advance(list []run, n int) []run {
	list[0].off += n
	if list[0].n -= n; list[0].n == 0 {
		return list[1:]
	}
	return list
}

// fillPiece is how many bytes of a pattern are written at a time.
const fillPiece = 1 << 20

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
	if len(pattern) == 0 || len(pattern) > 128 || p.bytes()%len(pattern) != 0 || p.form == formRect {
		return nil, errProtocol
	}
	c := &command{event: e, deps: deps, alone: p.form == formPixels}
	c.holding(p.m)
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) {
		if c.alone {
			return p.move(q, bytes.Repeat(pattern, p.bytes()/len(pattern)), true, nil)
		}
		return fillBuffer(q, &p, pattern, after)
	}
	return l.enqueue(q, c)
}

// fillBuffer writes a pattern again and again.
func fillBuffer(q *queue, p *place, pattern []byte, after []*gpustate.Event) (list []*gpustate.Event, err error) {
	piece := min(p.region[0], fillPiece/len(pattern)*len(pattern))
	b := bytes.Repeat(pattern, piece/len(pattern))
	for at := 0; at < p.region[0]; at += piece {
		e, err := q.q.WriteAsync(p.m.buf, p.origin[0]+at, b[:min(piece, p.region[0]-at)], after...)
		if err != nil {
			return nil, errors.Join(err, waitAll(list))
		}
		list = append(list, e)
	}
	return list, nil
}
