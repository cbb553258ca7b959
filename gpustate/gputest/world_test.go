package gputest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// world is a program with an object of every kind. Two steps of it change every
// content in a way that can be computed by hand.
type world struct {
	dev                       *gpustate.Device
	x, y, sub, sums, seen     *gpustate.Buffer
	line, plane, cube         *gpustate.Image
	sampler                   *gpustate.Sampler
	shared                    *gpustate.Shared
	host                      *gpustate.HostBuffer
	axpy, scale, group, sampl *gpustate.Kernel
	anonymous                 *gpustate.Kernel
	queue, loose              *gpustate.Queue
	images                    bool
}

// Sizes of the world.
const (
	items     = 4096
	groupSize = 64
	side      = 16 // of the plane
)

// open makes or finds all objects of the world.
func open(d *gpustate.Device) (*world, error) {
	w := &world{dev: d, images: d.Info().Images}
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	var err error
	w.queue, err = d.Queue("main")
	keep(err)
	w.loose, err = d.QueueWith("loose", gpustate.QueueOptions{OutOfOrder: true, Priority: -1, Window: 4})
	keep(err)
	w.x, err = d.BufferFor("x", 4*items, gpustate.ReadOnly)
	keep(err)
	w.y, err = d.Buffer("y", 4*items)
	keep(err)
	w.sums, err = d.Buffer("sums", 4*items/groupSize)
	keep(err)
	w.seen, err = d.Buffer("seen", 4*side*side)
	keep(err)
	w.shared, err = d.Shared("shared", 4*items)
	keep(err)
	w.host, err = d.HostBuffer("host", 8192)
	keep(err)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	w.sub, err = w.y.Sub("upper half", 2*items, 2*items)
	keep(err)
	if w.images {
		keep(w.openImages())
	}
	p, err := d.Program("ops", Sources, "-D UNUSED=1")
	if err != nil {
		return nil, errors.Join(append(errs, err)...)
	}
	keep(w.openKernels(p))
	return w, errors.Join(errs...)
}

func (w *world) openImages() error {
	var errs [4]error
	rgba := gpustate.ImageDesc{Order: gpustate.ChannelRGBA, Type: gpustate.ChannelFloat}
	w.line, errs[0] = w.dev.Image("line", gpustate.ImageDesc{Dims: 1, Width: 100,
		Order: gpustate.ChannelRGBA, Type: gpustate.ChannelUint8})
	plane := rgba
	plane.Width, plane.Height, plane.Access = side, side, gpustate.ReadOnly
	w.plane, errs[1] = w.dev.Image("plane", plane)
	cube := rgba
	cube.Width, cube.Height, cube.Depth = 8, 6, 4
	w.cube, errs[2] = w.dev.Image("cube", cube)
	w.sampler, errs[3] = w.dev.Sampler("near", gpustate.SamplerDesc{Addressing: gpustate.AddressEdge})
	return errors.Join(errs[:]...)
}

func (w *world) openKernels(p *gpustate.Program) error {
	var errs [5]error
	w.axpy, errs[0] = p.Kernel("axpy")
	w.scale, errs[1] = p.Kernel("scale")
	w.group, errs[2] = p.Kernel("group")
	w.anonymous, errs[3] = p.NewKernel("axpy")
	if w.images {
		w.sampl, errs[4] = p.Kernel("sample")
	}
	return errors.Join(errs[:]...)
}

// begin gives all contents and arguments their first values.
func (w *world) begin() error {
	x := make([]float32, items)
	for i := range x {
		x[i] = float32(i % 101)
	}
	errs := []error{
		w.queue.Write(w.x, 0, gpustate.Bytes(x)),
		w.queue.Write(w.y, 0, gpustate.Bytes(make([]float32, items))),
		w.queue.Write(w.sums, 0, gpustate.Bytes(make([]float32, items/groupSize))),
		w.queue.Write(w.seen, 0, gpustate.Bytes(make([]float32, side*side))),
		w.axpy.SetArgs(w.y, w.x, float32(2), int32(items)),
		w.scale.SetArgs(w.sub, Params{A: 3, N: items / 2, W: [2]float32{5, 1}}),
		w.group.SetArgs(w.y, w.sums, gpustate.Local(4*groupSize)),
		w.anonymous.SetArgs(w.shared, w.x, float32(1), int32(items)),
	}
	b, err := w.queue.Map(w.shared)
	clear(b)
	errs = append(errs, err, w.queue.Unmap(w.shared))
	for i := range w.host.Host() {
		w.host.Host()[i] = byte(7 * i)
	}
	if w.images {
		errs = append(errs, w.beginImages(),
			w.sampl.SetArgs(w.plane, w.sampler, w.seen, int32(side)))
	}
	return errors.Join(errs...)
}

func (w *world) beginImages() error {
	return errors.Join(
		w.queue.WriteImage(w.line, w.line.Whole(), pattern(400)),
		w.queue.WriteImage(w.plane, w.plane.Whole(), gpustate.Bytes(plane())),
		w.queue.WriteImage(w.cube, w.cube.Whole(), gpustate.Bytes(cube())))
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(3*i + 1)
	}
	return b
}

func plane() []float32 { return ramp(4*side*side, 1) }
func cube() []float32  { return ramp(4*8*6*4, 2) }

func ramp(n int, step float32) []float32 {
	f := make([]float32, n)
	for i := range f {
		f[i] = step * float32(i)
	}
	return f
}

// step launches every kernel once with the arguments they have. The last ones
// go to the out-of-order queue behind the first.
func (w *world) step() error {
	_, err := w.queue.Launch(w.axpy, []int{items}, []int{groupSize})
	if err != nil {
		return err
	}
	e, err := w.queue.Launch(w.scale, []int{items / 2}, nil)
	if err != nil {
		return err
	}
	if _, err = w.loose.Launch(w.anonymous, []int{items}, nil, e); err != nil {
		return err
	}
	if _, err = w.loose.Launch(w.group, []int{items}, []int{groupSize}, e); err != nil {
		return err
	}
	if w.images {
		if _, err = w.loose.Launch(w.sampl, []int{side * side}, nil, e); err != nil {
			return err
		}
	}
	return w.loose.Finish()
}

// check compares all contents with those after this many steps.
func (w *world) check(steps int) error {
	y, sh := make([]float32, items), make([]float32, items)
	for range steps {
		for i := range y {
			x := float32(i % 101)
			y[i] += 2 * x
			if i >= items/2 {
				y[i] = y[i]*3 + 4
			}
			sh[i] += x
		}
	}
	sums := make([]float32, items/groupSize)
	for i, v := range y {
		sums[i/groupSize] += v
	}
	errs := []error{
		w.compare(w.y, y), w.compare(w.sub, y[items/2:]), w.compare(w.sums, sums),
	}
	b, err := w.queue.Map(w.shared)
	errs = append(errs, err)
	if err == nil {
		errs = append(errs, same("shared", b, gpustate.Bytes(sh)), w.queue.Unmap(w.shared))
	}
	host := make([]byte, len(w.host.Host()))
	for i := range host {
		host[i] = byte(7 * i)
	}
	errs = append(errs, same("host", w.host.Host(), host))
	if w.images {
		errs = append(errs, w.checkImages(steps))
	}
	return errors.Join(errs...)
}

func (w *world) checkImages(steps int) error {
	line, pl, cb := make([]byte, 400), make([]float32, 4*side*side), make([]float32, 4*8*6*4)
	errs := []error{
		w.queue.ReadImage(w.line, w.line.Whole(), line), same("line", line, pattern(400)),
		w.queue.ReadImage(w.plane, w.plane.Whole(), gpustate.Bytes(pl)),
		same("plane", gpustate.Bytes(pl), gpustate.Bytes(plane())),
		w.queue.ReadImage(w.cube, w.cube.Whole(), gpustate.Bytes(cb)),
		same("cube", gpustate.Bytes(cb), gpustate.Bytes(cube())),
	}
	seen := make([]float32, side*side)
	for i := range seen {
		if p := pl[4*i:]; steps > 0 {
			seen[i] = p[0] + 2*p[1] + 4*p[2] + 8*p[3]
		}
	}
	return errors.Join(append(errs, w.compare(w.seen, seen))...)
}

func (w *world) compare(b *gpustate.Buffer, want []float32) error {
	got := make([]float32, len(want))
	if err := w.queue.Read(b, 0, gpustate.Bytes(got)); err != nil {
		return err
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("buffer %q: element %d is %g, want %g", b.Name(), i, got[i], want[i])
		}
	}
	return nil
}

func same(what string, got, want []byte) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d bytes, want %d", what, len(got), len(want))
	}
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("%s: byte %d is %d, want %d", what, i, got[i], want[i])
		}
	}
	return nil
}
