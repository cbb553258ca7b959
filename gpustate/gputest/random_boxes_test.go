package gputest

import (
	"bytes"
	"errors"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// someFloats returns n bytes of small whole numbers.
func (m *model) someFloats(n int) []byte {
	b := make([]byte, n)
	for i := range n / 4 {
		floats(b).set(i, float32(m.r.IntN(50)))
	}
	return b
}

// fillRange fills a range of an object with a pattern.
func (m *model) fillRange() {
	m.b.Helper()
	x := pick(m, m.linears())
	pattern := m.someFloats(4 << m.r.IntN(6))
	if m.r.IntN(4) == 0 {
		pattern = make([]byte, 1<<m.r.IntN(2))
	}
	unit := max(len(pattern), 4)
	whole := x.bytes / unit
	if whole == 0 {
		return
	}
	off := m.r.IntN(whole)
	n := 1 + m.r.IntN(whole-off)
	q, after := m.anyQueue(x)
	e, err := q.q.Fill(x.linear, off*unit, n*unit, pattern, after...)
	m.b.ok(err)
	issued(q, e, x)
	part := x.want[off*unit : (off+n)*unit]
	copy(part, bytes.Repeat(pattern, len(part)/len(pattern)))
}

// layout places a box somewhere in a number of bytes, with gaps between its rows and slices;
// false if it does not fit.
func (m *model) layout(size gpustate.Box, bytes int) (l gpustate.Layout, fits bool) {
	l.Row = size[0] + 4*m.r.IntN(3)
	l.Slice = l.Row * (size[1] + m.r.IntN(3))
	left := bytes - l.Slice*(size[2]-1) - l.Row*(size[1]-1) - size[0]
	if left < 0 {
		return l, false
	}
	l.Off = 4 * m.r.IntN(left/4+1)
	if l.Row == size[0] && m.r.IntN(2) == 0 {
		if l.Row = 0; l.Slice == size[0]*size[1] {
			l.Slice = 0
		}
	}
	return l, true
}

// rows calls do with where the rows of a box are in two layouts.
func rows(size gpustate.Box, to, from gpustate.Layout, do func(t, f int)) {
	for _, l := range []*gpustate.Layout{&to, &from} {
		if l.Row == 0 {
			l.Row = size[0]
		}
		if l.Slice == 0 {
			l.Slice = l.Row * size[1]
		}
	}
	for z := range size[2] {
		for y := range size[1] {
			do(to.At(0, y, z).Off, from.At(0, y, z).Off)
		}
	}
}

// box writes, reads or copies a box.
func (m *model) box() {
	m.b.Helper()
	size := gpustate.Box{4 * (1 + m.r.IntN(20)), 1 + m.r.IntN(6), 1 + m.r.IntN(4)}
	x := pick(m, m.linears())
	if m.r.IntN(16) == 0 { // more than one piece of a transfer
		size = gpustate.Box{4 * (1 + m.r.IntN(300)), 1 + m.r.IntN(60), 1 + m.r.IntN(60)}
	}
	at, fits := m.layout(size, x.bytes)
	if !fits {
		return
	}
	switch m.r.IntN(3) {
	case 0:
		m.copyBox(x, at, size)
	case 1:
		host := m.someFloats(8 * size[0] * (size[1] + 3) * (size[2] + 3))
		from, _ := m.layout(size, len(host))
		q, after := m.anyQueue(x)
		e, err := q.q.WriteRectAsync(x.linear, at, size, host, from, after...)
		m.b.ok(err)
		issued(q, e, x)
		rows(size, at, from, func(t, f int) { copy(x.want[t:t+size[0]], host[f:]) })
	default:
		host := m.someFloats(8 * size[0] * (size[1] + 3) * (size[2] + 3))
		want := bytes.Clone(host)
		to, _ := m.layout(size, len(host))
		q, after := m.anyQueue(x)
		e, err := q.q.ReadRectAsync(x.linear, at, size, host, to, after...)
		m.b.ok(err)
		issued(q, e, x)
		m.b.ok(e.Wait())
		rows(size, to, at, func(t, f int) { copy(want[t:t+size[0]], x.want[f:]) })
		m.b.ok(same("box", host, want))
	}
}

func (m *model) copyBox(to *memory, at gpustate.Layout, size gpustate.Box) {
	m.b.Helper()
	from := pick(m, m.linears())
	out, fits := m.layout(size, from.bytes)
	if !fits || to.base() == from.base() {
		return
	}
	q, after := m.anyQueue(to, from)
	e, err := q.q.CopyRect(to.linear, at, from.linear, out, size, after...)
	m.b.ok(err)
	issued(q, e, to, from)
	rows(size, at, out, func(t, f int) { copy(to.want[t:t+size[0]], from.want[f:f+size[0]]) })
}

// barrier orders all commands of a queue: those behind it need not wait for those before.
// Two fills of the same range, one on each side, show it.
func (m *model) barrier() {
	m.b.Helper()
	q := pick(m, find[*queue](m))
	if m.r.IntN(2) == 0 {
		q = m.loose
	}
	x := pick(m, m.linears())
	fill := func() {
		p := m.someFloats(4)
		e, err := q.q.Fill(x.linear, 0, x.bytes, p, q.after(x)...)
		m.b.ok(err)
		issued(q, e, x)
		copy(x.want, bytes.Repeat(p, x.bytes/4))
	}
	fill()
	_, err := q.q.Barrier()
	m.b.ok(err)
	for _, x := range find[*memory](m) {
		if b := x.base(); b.lastQ == q {
			b.fenced = true
		}
	}
	fill()
}

// imageCommand works on regions of images.
func (m *model) imageCommand() {
	m.b.Helper()
	var images []*memory
	for _, x := range find[*memory](m) {
		if x.image != nil {
			images = append(images, x)
		}
	}
	if len(images) == 0 {
		return
	}
	x := pick(m, images)
	size := [3]int{1 + m.r.IntN(x.bytes/32), 1 + m.r.IntN(8), 1}
	switch m.r.IntN(5) {
	case 0:
		m.fillImage(x, m.place(x, size))
	case 1:
		m.copyImage(x, pick(m, images), size)
	case 2, 3:
		m.copyWithBuffer(x, m.place(x, size), m.r.IntN(2) == 0)
	default:
		r := m.place(x, size)
		got, want := make([]byte, 4*size[0]*size[1]), []byte(nil)
		q, after := m.anyQueue(x)
		e, err := q.q.ReadImageAsync(x.image, r, got, after...)
		m.b.ok(err)
		issued(q, e, x)
		m.b.ok(e.Wait())
		x.pixels(r, func(row []byte) { want = append(want, row...) })
		m.b.ok(same("region", got, want))
	}
}

// place puts a region somewhere in an image.
func (m *model) place(x *memory, size [3]int) gpustate.Region {
	return gpustate.Region{Origin: [3]int{m.r.IntN(x.bytes/32 - size[0] + 1), m.r.IntN(8 - size[1] + 1)}, Size: size}
}

// pixels calls do for what the rows of a region must hold.
func (x *memory) pixels(r gpustate.Region, do func(row []byte)) {
	for y := range r.Size[1] {
		at := 4 * ((r.Origin[1]+y)*(x.bytes/32) + r.Origin[0])
		do(x.want[at : at+4*r.Size[0]])
	}
}

func (m *model) fillImage(x *memory, r gpustate.Region) {
	m.b.Helper()
	p := m.someFloats(4)
	q, after := m.anyQueue(x)
	e, err := q.q.FillImage(x.image, r, uintColor(uint32(p[0]), uint32(p[1]), uint32(p[2]), uint32(p[3])),
		after...)
	m.b.ok(err)
	issued(q, e, x)
	x.pixels(r, func(row []byte) { copy(row, bytes.Repeat(p, len(row)/4)) })
}

func (m *model) copyImage(to, from *memory, size [3]int) {
	m.b.Helper()
	if to == from || to.array != from.array || size[0] > from.bytes/32 {
		return
	}
	dst, src := m.place(to, size), m.place(from, size)
	q, after := m.anyQueue(to, from)
	e, err := q.q.CopyImage(to.image, dst.Origin, from.image, src, after...)
	m.b.ok(err)
	issued(q, e, to, from)
	var packed []byte
	from.pixels(src, func(row []byte) { packed = append(packed, row...) })
	to.pixels(dst, func(row []byte) { packed = packed[copy(row, packed):] })
}

// copyWithBuffer copies a region of an image to a buffer or back.
func (m *model) copyWithBuffer(x *memory, r gpustate.Region, toBuffer bool) {
	m.b.Helper()
	b := pick(m, m.linears())
	n := 4 * r.Size[0] * r.Size[1]
	if n > b.bytes {
		return
	}
	off := 4 * m.r.IntN((b.bytes-n)/4+1)
	q, after := m.anyQueue(x, b)
	var e *gpustate.Event
	var err error
	at := off
	if toBuffer {
		e, err = q.q.CopyFromImage(b.linear, off, x.image, r, after...)
		x.pixels(r, func(row []byte) { at += copy(b.want[at:], row) })
	} else {
		e, err = q.q.CopyToImage(x.image, r, b.linear, off, after...)
		x.pixels(r, func(row []byte) { at += copy(row, b.want[at:]) })
	}
	m.b.ok(err)
	issued(q, e, x, b)
}

// view is an image of one dimension on the bytes of a buffer.
type view struct {
	common
	of     *memory
	pixels int
	image  *gpustate.Image
}

func (v *view) make(*model) (err error) {
	v.image, err = v.of.linear.(*gpustate.Buffer).View(v.name, gpustate.ImageDesc{Width: v.pixels,
		Order: gpustate.ChannelRGBA, Type: gpustate.ChannelUint8})
	return err
}

func (v *view) release() error { return v.image.Release() }

// look makes views of buffers where the device has them, and works on the bytes through them.
func (m *model) look() {
	m.b.Helper()
	if !m.dev.Info().Images || m.dev.Info().Kind == "cuda" || m.b.sel.Kind == "cuda" || m.luck.IntN(8) > 0 {
		return
	}
	views := find[*view](m)
	switch k := m.luck.IntN(8); {
	case k < 2 && len(views) < 4:
		for _, x := range find[*memory](m) {
			if x.kind == kindBuffer && m.luck.IntN(2) == 0 {
				v := &view{of: x, pixels: 1 + m.luck.IntN(min(x.bytes/4, 500))}
				if m.luck.IntN(2) == 0 {
					v.name = m.label()
				}
				if err := v.make(m); errors.Is(err, gpustate.ErrUnsupported) || errors.Is(err, gpustate.ErrRange) {
					return
				}
				m.b.ok(v.release())
				m.calls = append(m.calls, call{o: v}, call{o: v, release: true}) // it counts
				m.add(v)
				return
			}
		}
	case k == 2 && len(views) > 0:
		m.end(views[m.luck.IntN(len(views))])
	case k < 6 && len(views) > 0:
		v := views[m.luck.IntN(len(views))]
		at := m.luck.IntN(v.pixels)
		n := 1 + m.luck.IntN(v.pixels-at)
		src := m.someFloats(4 * n)
		q, after := m.anyQueue(v.of)
		r := gpustate.Region{Origin: [3]int{at}, Size: [3]int{n, 1, 1}}
		e, err := q.q.WriteImageAsync(v.image, r, src, after...)
		m.b.ok(err)
		issued(q, e, v.of)
		copy(v.of.want[4*at:4*(at+n)], src)
	default:
		m.lookAt()
	}
}

// lookAt compares what views show with the bytes of their buffers.
func (m *model) lookAt() {
	m.b.Helper()
	for _, v := range find[*view](m) {
		got := make([]byte, 4*v.pixels)
		q, after := m.anyQueue(v.of)
		e, err := q.q.ReadImageAsync(v.image, v.image.Whole(), got, after...)
		m.b.ok(err)
		issued(q, e, v.of)
		m.b.ok(e.Wait())
		m.b.ok(same("view", got, v.of.want[:4*v.pixels]))
	}
}
