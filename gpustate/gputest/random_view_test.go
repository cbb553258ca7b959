package gputest

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

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
