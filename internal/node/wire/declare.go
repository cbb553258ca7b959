package wire

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

// declare takes the body of a DECLARE apart.
func (d *fields) declare(m *Message) {
	m.Array, m.Elem, m.Kind, m.Flags, m.Count = d.u32(), d.u32(), d.u32(), d.u32(), d.u64()
	dims, boxes := d.u32(), d.u32()
	m.Text = d.text()
	d.want(m.Array < MostArrays && ElemBytes(m.Elem) > 0 && m.Flags <= DeclareMore && m.Text != "")
	switch m.Kind {
	case KindDivided:
		d.want(dims >= 1 && dims <= MaxDims && m.Count == 0)
	case KindReplicated:
		d.want(dims == 0 && boxes == 0 && m.Flags == 0)
		d.want(!d.bad && m.Count <= MostBytes/uint64(ElemBytes(m.Elem)))
	default:
		d.bad = true
	}
	d.want(!d.bad && uint64(len(d.b)) == 8*uint64(dims)+uint64(boxes)*uint64(dims)*axisBytes)
	if d.bad {
		return
	}
	for range dims {
		n := int64(d.u64())
		d.want(n >= 0 && n <= MaxElems)
		m.Dims = append(m.Dims, n)
	}
	for range boxes {
		box := make(Box, dims)
		for i := range box {
			box[i] = Axis{int64(d.u64()), int64(d.u64()), int64(d.u64()), int64(d.u64())}
			d.want(box[i].valid())
		}
		m.Boxes = append(m.Boxes, box)
	}
}
