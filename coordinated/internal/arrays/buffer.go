package arrays

import (
	"context"
	"fmt"
	"reflect"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// DeviceMemory is a buffer of elements of a type, in place of a slice.
type DeviceMemory struct {
	Buffer *gpustate.Buffer
	At     **gpustate.Buffer // the program's variable, of an array that may get another buffer
	Elem   reflect.Type
}

// Device returns the one that the buffer is on.
func (m DeviceMemory) Device() *gpustate.Device {
	if m.At != nil {
		return (*m.At).Device()
	}
	return m.Buffer.Device()
}

// inBuffer is the memory of an array on a device.
type inBuffer struct {
	*gpustate.Buffer
	shares []gpustate.Share // one: the array's boxes
}

// device makes the memory of an array that lies in a buffer.
func (p *Protected) device(g *array, m DeviceMemory) error {
	if m.Buffer == nil {
		return fmt.Errorf("no buffer; make it first")
	}
	l, err := capture.TypeLayout(m.Elem)
	if err != nil {
		return err
	}
	g.local.Type, g.local.Elem = l, int64(m.Elem.Size())
	g.dev = &inBuffer{Buffer: m.Buffer}
	return p.notWhole(m.Buffer.Device())
}

// share notes the array's share of the buffer: its pieces, each as boxes of three dimensions.
func (g *array) share() {
	s := gpustate.Share{Buffer: g.dev.Buffer}
	size := int(g.local.Elem)
	for _, b := range g.stored() {
		shape, stride := b.Part.Shape(), b.At.Stride
		inner := max(len(shape)-3, 0)
		box, at := gpustate.Box{1, 1, 1}, gpustate.Layout{}
		for d := len(shape) - 1; d >= inner; d-- {
			box[len(shape)-1-d] = int(shape[d])
		}
		box[0] *= size
		if len(shape)-inner > 1 {
			at.Row = int(stride[len(shape)-2]) * size
		}
		if len(shape)-inner > 2 {
			at.Slice = int(stride[len(shape)-3]) * size
		}
		var walk func(d int, base int64)
		walk = func(d int, base int64) {
			if d == inner {
				p := gpustate.Placed{At: at, Size: box}
				p.At.Off = int(base) * size
				s.Boxes = append(s.Boxes, p)
				return
			}
			for k := range shape[d] {
				walk(d+1, base+k*stride[d])
			}
		}
		walk(0, b.At.Base)
	}
	g.dev.shares = []gpustate.Share{s}
}

func (p *Protected) arrayDevices() (list []*gpustate.Device, arrays map[*gpustate.Device][]*array) {
	arrays = map[*gpustate.Device][]*array{}
	for _, g := range p.arrays {
		if g.dev == nil {
			continue
		}
		d := g.dev.Device()
		if arrays[d] == nil {
			list = append(list, d)
		}
		arrays[d] = append(arrays[d], g)
	}
	return list, arrays
}

// saveBuffer saves the contents of an array on a device; nil without room.
func (r *Restoring) saveBuffer(ctx context.Context, g *array) (*gpustate.Mark, error) {
	if m, ok := r.shares[g]; ok {
		return m, nil
	}
	bytes, shares := g.bytes(), g.dev.shares
	if g.changing != nil { // the next attempt may have other blocks
		bytes = int64(g.dev.Bytes())
		whole := gpustate.Placed{Size: gpustate.Box{int(bytes), 1, 1}}
		shares = []gpustate.Share{{Buffer: g.dev.Buffer, Boxes: []gpustate.Placed{whole}}}
	}
	if !r.p.Holds(bytes) {
		return nil, nil
	}
	m, err := g.dev.Device().MarkShares(ctx, shares, r.p.AllocDevice)
	if err == nil {
		r.shares[g] = m
	}
	return m, err
}

// toBuffer writes pieces to an array's buffer.
type toBuffer struct {
	g *array
	w *gpustate.ShareWriter
}

func (t *toBuffer) direct(_, _ int64) []byte { return nil }

// put writes runs of equal length that lie equally far apart with one command.
func (t *toBuffer) put(list []piece, scratch []byte, base int64) error {
	for len(list) > 0 {
		p, n := list[0], 1
		var from, to int64
		for n < len(list) && list[n].n == p.n {
			df, dt := list[n].from-list[n-1].from, list[n].to-list[n-1].to
			if n == 1 {
				from, to = df, dt
			}
			if df < p.n || dt < p.n || df != from || dt != to {
				break
			}
			n++
		}
		at := gpustate.Layout{Off: int(p.to), Row: int(to)}
		src := gpustate.Layout{Off: int(p.from - base), Row: int(from)}
		if n == 1 {
			at.Row, src.Row = 0, 0
		}
		if err := t.w.Write(t.g.dev.Buffer, at, gpustate.Box{int(p.n), n, 1}, scratch, src); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// into has read put pieces into the array's memory; without keep they are only read.
func (g *array) into(ctx context.Context, keep bool, read func(t target) error) error {
	switch {
	case !keep:
		return read(nowhere{})
	case g.dev == nil:
		return read(toMemory(g.mem()))
	}
	return g.dev.Device().WriteShares(ctx, func(w *gpustate.ShareWriter) error { return read(&toBuffer{g, w}) })
}
