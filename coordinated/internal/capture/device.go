package capture

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// DeviceMemory is a buffer of elements of a type, in place of a slice.
type DeviceMemory struct {
	Buffer *gpustate.Buffer
	At     **gpustate.Buffer // where the program has it, of an array that may get another one
	Elem   reflect.Type
}

// inBuffer is the memory of an array on a device.
type inBuffer struct {
	*gpustate.Buffer
	shares []gpustate.Share // one: the array's boxes
}

// device makes the memory of an array that lies in a buffer.
func (p *Protected) device(g *global, m DeviceMemory) error {
	if m.Buffer == nil {
		return fmt.Errorf("no buffer; make it first")
	}
	l, err := typeLayout(m.Elem)
	if err != nil {
		return err
	}
	g.local.Type, g.local.Elem = l, int64(m.Elem.Size())
	g.dev = &inBuffer{Buffer: m.Buffer}
	return p.notWhole(m.Buffer.Device())
}

// notWhole makes sure that a device is not protected whole: its buffers would be in each epoch twice.
func (p *Protected) notWhole(d *gpustate.Device) error {
	for i := range p.devices {
		if p.devices[i].Device == d {
			return fmt.Errorf("device %q is protected with all its buffers; protect the device, which only the same "+
				"number of ranks restores, or arrays in its buffers", p.devices[i].Name)
		}
	}
	return nil
}

// noArrays makes sure that no array lies on a device.
func (p *Protected) noArrays(d *gpustate.Device) error {
	for _, g := range p.globals {
		if g.dev != nil && g.dev.Device() == d {
			return fmt.Errorf("array %q lies on the device; protect the device, which only the same number of ranks "+
				"restores, or arrays in its buffers", g.local.Name)
		}
	}
	return nil
}

// share says what the array has of the buffer: its pieces, each as boxes of three dimensions.
func (g *global) share() {
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

// arrayDevices lists the devices that arrays lie on, and those arrays.
func (p *Protected) arrayDevices() (list []*gpustate.Device, arrays map[*gpustate.Device][]*global) {
	arrays = map[*gpustate.Device][]*global{}
	for _, g := range p.globals {
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

// captureBuffers takes the arrays that lie on devices: those of a device together.
func (p *Protected) captureBuffers(ctx context.Context, s *Snapshot) error {
	devices, arrays := p.arrayDevices()
	for i, d := range devices {
		var shares []gpustate.Share
		for _, g := range arrays[d] {
			if err := g.inMemory(); err != nil {
				return fmt.Errorf("capture %q: %w", g.local.Name, err)
			}
			shares = append(shares, g.dev.shares...)
		}
		c, err := d.CaptureShares(ctx, shares, p.pool.allocDevice)
		if err != nil {
			return fmt.Errorf("capture arrays: %w", err)
		}
		s.devices = append(s.devices, c)
		h := p.hashesOf(Device{fmt.Sprintf("%s%d", sectionArray, i), d}, c)
		if h != nil {
			s.hashes = append(s.hashes, h)
		}
		for k, g := range arrays[d] {
			s.add(g.local.Section, &deviceContent{c, k, h}, c.Contents()[k].Bytes)
		}
	}
	return nil
}

// keepBuffer notes what an array on a device held. nil: there is no room for that.
func (l *Loader) keepBuffer(ctx context.Context, g *global) (*gpustate.ShareMark, error) {
	if m, ok := l.shares[g]; ok {
		return m, nil
	}
	bytes, shares := g.bytes(), g.dev.shares
	if g.changing != nil { // the next attempt may have other blocks
		bytes = int64(g.dev.Bytes())
		whole := gpustate.Placed{Size: gpustate.Box{int(bytes), 1, 1}}
		shares = []gpustate.Share{{Buffer: g.dev.Buffer, Boxes: []gpustate.Placed{whole}}}
	}
	if limit := l.p.pool.limit; limit > 0 && bytes > limit {
		return nil, nil
	}
	m, err := g.dev.Device().MarkShares(ctx, shares, l.p.pool.allocDevice)
	if err == nil {
		l.shares[g] = m
	}
	return m, err
}

// toBuffer writes pieces to an array's buffer.
type toBuffer struct {
	g *global
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

// into has read bring pieces to where the array lies; without keep they are read alone.
func (g *global) into(ctx context.Context, keep bool, read func(t target) error) error {
	switch {
	case !keep:
		return read(nowhere{})
	case g.dev == nil:
		return read(toMemory(g.mem()))
	}
	return g.dev.Device().WriteShares(ctx, func(w *gpustate.ShareWriter) error { return read(&toBuffer{g, w}) })
}

// target is where pieces of a section go.
type target interface {
	// direct is the memory from a place on, nil if put brings bytes there.
	direct(to, n int64) []byte
	// put brings pieces to their places; scratch begins with byte base of the section.
	put(list []piece, scratch []byte, base int64) error
}

type toMemory []byte

func (m toMemory) direct(to, n int64) []byte { return m[to:][:n] }

func (m toMemory) put(list []piece, scratch []byte, base int64) error {
	for _, p := range list {
		copy(m[p.to:p.to+p.n], scratch[p.from-base:])
	}
	return nil
}

// nowhere is for bytes that are only verified.
type nowhere struct{}

func (nowhere) direct(_, _ int64) []byte               { return nil }
func (nowhere) put(_ []piece, _ []byte, _ int64) error { return nil }

// releaseShares gives back what the marks of buffers hold.
func (l *Loader) releaseShares() error {
	var errs []error
	for _, m := range l.shares {
		errs = append(errs, m.Release())
	}
	return errors.Join(errs...)
}
