package wire

import "github.com/holdfast-hpc/holdfast/internal/codec"

// Axis describes a box along one dimension of a global array: Count indices from Start on, in runs of Block indices
// whose beginnings are Stride apart. The last run may be shorter. A single run has Block and Stride 0.
type Axis struct{ Start, Count, Block, Stride int64 }

// Box describes one dense local array of a rank, part of a global array: an axis for each dimension.
type Box []Axis

const axisBytes = 32

func (a *Axis) valid() bool {
	if a.Start < 0 || a.Start > MaxElems || a.Count < 1 || a.Count > MaxElems {
		return false
	}
	if a.Block == 0 {
		return a.Stride == 0
	}
	return a.Block > 0 && a.Block < a.Count && a.Stride > a.Block && a.Stride <= MaxElems/((a.Count-1)/a.Block)
}

func (m *Message) declared(f *codec.Fields) {
	dims, boxes := uint32(len(m.Dims)), uint32(len(m.Boxes))
	codec.Fixed(f, &m.Array, &m.Elem, &m.Kind, &m.Flags)
	codec.Fixed(f, &m.Count)
	codec.Fixed(f, &dims, &boxes)
	text(f, &m.Text, NameBytes)
	f.Check(m.Array < MostArrays && ElemBytes(m.Elem) > 0 && m.Flags <= DeclareMore && m.Text != "", "array")
	switch m.Kind {
	case KindDivided:
		f.Check(dims >= 1 && dims <= MaxDims && m.Count == 0, "dimensions")
	case KindReplicated:
		f.Check(dims == 0 && boxes == 0 && m.Flags == 0 && m.Count <= mostElems(m.Elem), "length")
	default:
		f.Check(false, "kind")
	}
	if f.Reading {
		f.Check(uint64(len(f.R.B)) == 8*uint64(dims)+uint64(boxes)*uint64(dims)*axisBytes, "boxes")
		if f.R.Err != nil {
			return
		}
		m.Dims = append(m.Dims, make([]int64, dims)...)
		m.Boxes = append(m.Boxes, make([]Box, boxes)...)
	}
	for i := range m.Dims {
		codec.Fixed(f, &m.Dims[i])
		f.Check(m.Dims[i] >= 0 && m.Dims[i] <= MaxElems, "dimension")
	}
	for i := range m.Boxes {
		if f.Reading {
			m.Boxes[i] = make(Box, dims)
		}
		for k := range m.Boxes[i] {
			a := &m.Boxes[i][k]
			codec.Fixed(f, &a.Start, &a.Count, &a.Block, &a.Stride)
			f.Check(a.valid(), "axis")
		}
	}
}
