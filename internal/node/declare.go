package node

import (
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
)

// declare adds a global array or a replicated value of a client, or replaces one that has moved or is divided in
// another way.
func (s *session) declare(m wire.Message) error {
	boxes, err := s.collect(m)
	if err != nil || m.Flags&wire.DeclareMore != 0 {
		return err
	}
	a := &array{name: m.Text, elem: m.Elem, kind: m.Kind, dims: m.Dims}
	a.ID, a.Layout, a.Elem = m.Array, wire.ElemLayout(m.Elem, 0), wire.ElemBytes(m.Elem)
	count := int64(m.Count)
	if m.Kind == wire.KindDivided {
		if count, err = a.setBoxes(boxes); err != nil {
			return err
		}
	}
	if was := s.arrays[m.Array]; was != nil {
		if was.kind != m.Kind {
			return was.protectedDifferently()
		}
		if was.name != m.Text || was.elem != m.Elem {
			return fmt.Errorf("%q has elements of another type than before; protect it under another name", m.Text)
		}
		was.dims, was.parts = a.dims, a.parts
		if was.kind == wire.KindReplicated {
			s.changed(was, count)
		}
		was.count.Store(count)
		return nil
	}
	if reserved(m.Text) {
		return fmt.Errorf("%q: names that begin with \"holdfast.\" are the library's; use another", m.Text)
	}
	a.count.Store(count)
	a.Count = a.count.Load
	if m.Kind == wire.KindReplicated {
		err = s.ck.ProtectReplicated(m.Text, &a.Array)
	} else {
		a.Shape = func() ([]int64, []layout.Part) { return a.dims, a.parts }
		err = s.ck.ProtectGlobal(m.Text, &a.Array)
	}
	if err == nil {
		s.arrays[m.Array] = a
	}
	return err
}

// protectedDifferently returns the error for a name that is protected in another way.
func (a *array) protectedDifferently() error {
	how := map[uint32]string{0: "hf_protect", wire.KindDivided: "hf_protect_global",
		wire.KindReplicated: "hf_protect_replicated"}
	return fmt.Errorf("%q was protected by %s before; use that, or another name", a.name, how[a.kind])
}

// collect joins the boxes of a DECLARE with those of the ones before it.
func (s *session) collect(m wire.Message) ([]wire.Box, error) {
	was := &s.boxes
	if was.Flags&wire.DeclareMore != 0 {
		if was.Array != m.Array || was.Elem != m.Elem || was.Kind != m.Kind || was.Text != m.Text ||
			!slices.Equal(was.Dims, m.Dims) {
			return nil, fmt.Errorf("%w: DECLARE of %q where %q goes on", wire.ErrMalformed, m.Text, was.Text)
		}
		m.Boxes = append(was.Boxes, m.Boxes...)
	}
	if len(m.Boxes) > wire.MostBoxes {
		return nil, fmt.Errorf("%w: %q has more than %d boxes", wire.ErrMalformed, m.Text, wire.MostBoxes)
	}
	s.boxes = wire.Message{}
	if m.Flags&wire.DeclareMore != 0 {
		s.boxes = m
	}
	return m.Boxes, nil
}

// setBoxes makes the boxes the parts of the array, and counts its elements.
func (a *array) setBoxes(boxes []wire.Box) (count int64, err error) {
	most := int64(wire.MostBytes / a.Elem)
	for _, box := range boxes {
		part := partOf(box)
		n := int64(1)
		for _, axis := range box {
			if n > most/axis.Count {
				n = most + 1
				break
			}
			n *= axis.Count
		}
		if count += n; count > most {
			return 0, fmt.Errorf("%q: a rank has more than 64 TiB; are the boxes right?", a.name)
		}
		a.parts = append(a.parts, part)
	}
	l := layout.Local{Array: layout.Array{Name: a.name, Type: a.Layout, Elem: int64(a.Elem), Dims: a.dims,
		Kind: layout.Divided}, Parts: a.parts}
	return count, l.Fits(-1)
}

func partOf(box wire.Box) (p layout.Part) {
	for _, a := range box {
		if a.Block == 0 {
			p.Spans = append(p.Spans, []layout.Span{layout.Run(a.Start, a.Count)})
			continue
		}
		times, tail := a.Count/a.Block, a.Count%a.Block
		first := layout.Span{Start: a.Start, Count: a.Block, Stride: a.Stride, Times: times}
		if times == 1 {
			first = layout.Run(a.Start, a.Block)
		}
		spans := []layout.Span{first}
		if tail > 0 {
			spans = append(spans, layout.Run(a.Start+times*a.Stride, tail))
		}
		p.Spans = append(p.Spans, spans)
	}
	return p
}
