package cl

import (
	"context"
	"errors"
	"image"
	"image/color"
	"strings"
	"testing"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

const squareSource = `
__kernel void square(__global const float *in, __global float *out, const uint count) {
	uint i = get_global_id(0);
	if (i < count) out[i] = in[i] * in[i];
}
__kernel void place(__global int *out) { out[get_global_id(0) - 3] = get_global_id(0); }
`

// setup is what a program against the original package begins with.
type setup struct {
	t       *testing.T
	device  *Device
	context *Context
	queue   *CommandQueue
}

func newSetup(t *testing.T, properties CommandQueueProperty) *setup {
	t.Helper()
	platforms, err := GetPlatforms()
	if err != nil {
		if strings.Contains(err.Error(), "is not on this machine") {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	if len(platforms) == 0 {
		t.Skip("no OpenCL platform on this machine")
	}
	s := &setup{t: t}
	devices, err := platforms[0].GetDevices(DeviceTypeAll)
	s.ok(err)
	s.device = devices[0]
	s.context, err = CreateContext(devices[:1])
	s.ok(err)
	t.Cleanup(s.context.Release)
	s.queue, err = s.context.CreateCommandQueue(s.device, properties)
	s.ok(err)
	return s
}

func (s *setup) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *setup) kernel(name string) *Kernel {
	s.t.Helper()
	p, err := s.context.CreateProgramWithSource([]string{squareSource})
	s.ok(err)
	s.ok(p.BuildProgram(nil, ""))
	k, err := p.CreateKernel(name)
	s.ok(err)
	return k
}

func TestSquare(t *testing.T) {
	s := newSetup(t, CommandQueueProfilingEnable)
	const n = 1000
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i)
	}
	input, err := s.context.CreateEmptyBuffer(MemReadOnly, 4*n)
	s.ok(err)
	output, err := s.context.CreateEmptyBuffer(MemWriteOnly, 4*n)
	s.ok(err)
	_, err = s.queue.EnqueueWriteBufferFloat32(input, true, 0, data, nil)
	s.ok(err)
	k := s.kernel("square")
	s.ok(k.SetArgs(input, output, uint32(n)))
	local, err := k.WorkGroupSize(s.device)
	s.ok(err)
	if local < 1 {
		t.Errorf("work-group size %d", local)
	}
	_, err = k.PreferredWorkGroupSizeMultiple(s.device)
	s.ok(err)
	if args, err := k.NumArgs(); err != nil || args != 3 {
		t.Errorf("NumArgs = %d, %v, want 3", args, err)
	}
	e, err := s.queue.EnqueueNDRangeKernel(k, nil, []int{n}, []int{10}, nil)
	s.ok(err)
	got := make([]float32, n)
	read, err := s.queue.EnqueueReadBufferFloat32(output, false, 0, got, []*Event{e})
	s.ok(err)
	s.ok(WaitForEvents([]*Event{e, read}))
	for i, v := range got {
		if v != data[i]*data[i] {
			t.Fatalf("out[%d] = %g", i, v)
		}
	}
	start, err := e.GetEventProfilingInfo(ProfilingInfoCommandStart)
	s.ok(err)
	end, err := e.GetEventProfilingInfo(ProfilingInfoCommandEnd)
	s.ok(err)
	if end < start {
		t.Errorf("kernel from %d to %d", start, end)
	}
}

func TestOffset(t *testing.T) {
	s := newSetup(t, 0)
	out, err := s.context.CreateEmptyBuffer(MemReadWrite, 16)
	s.ok(err)
	k := s.kernel("place")
	s.ok(k.SetArg(0, out))
	_, err = s.queue.EnqueueNDRangeKernel(k, []int{3}, []int{4}, nil, nil)
	s.ok(err)
	got := make([]int32, 4)
	_, err = s.queue.EnqueueReadBuffer(out, true, 0, 16, unsafe.Pointer(&got[0]), nil)
	s.ok(err)
	if got != nil && (got[0] != 3 || got[3] != 6) {
		t.Errorf("got %v, want 3 4 5 6", got)
	}
}

func TestErrors(t *testing.T) {
	s := newSetup(t, 0)
	k := s.kernel("square")
	if _, err := s.queue.EnqueueTask(k, nil); err != ErrInvalidKernelArgs {
		t.Errorf("launch without arguments: %v, want ErrInvalidKernelArgs", err)
	}
	var arg ErrUnsupportedArgumentType
	if err := k.SetArg(0, "text"); !errors.As(err, &arg) || arg.Index != 0 {
		t.Errorf("text as argument: %v", err)
	}
	p, err := s.context.CreateProgramWithSource([]string{"__kernel void broken( {"})
	s.ok(err)
	var build BuildError
	if err := p.BuildProgram(nil, ""); !errors.As(err, &build) || len(build) == 0 {
		t.Errorf("broken program: %v, want a BuildError with the log", err)
	}
	if _, err := p.CreateKernel("broken"); err != ErrInvalidProgramExecutable {
		t.Errorf("kernel of a program that is not built: %v", err)
	}
	if _, err := s.context.CreateBufferUnsafe(MemReadWrite, 16, unsafe.Pointer(&[16]byte{})); err != ErrInvalidHostPtr {
		t.Errorf("data without a flag for it: %v, want ErrInvalidHostPtr", err)
	}
	if _, err := s.context.CreateEmptyBuffer(MemReadWrite, 0); err != ErrInvalidBufferSize {
		t.Errorf("empty buffer: %v, want ErrInvalidBufferSize", err)
	}
	if _, err := CreateContext([]*Device{s.device, s.device}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("context of two devices: %v", err)
	}
	if _, err := CreateContext(nil); err != ErrInvalidValue {
		t.Errorf("context of no device: %v", err)
	}
}

func TestMapAndFill(t *testing.T) {
	s := newSetup(t, 0)
	b, err := s.context.CreateBuffer(MemReadWrite|MemCopyHostPtr, []byte{1, 2, 3, 4, 5, 6, 7, 8})
	s.ok(err)
	m, _, err := s.queue.EnqueueMapBuffer(b, true, MapFlagRead|MapFlagWrite, 2, 4, nil)
	s.ok(err)
	if m.Size() != 4 || m.ByteSlice()[0] != 3 || *(*byte)(m.Ptr()) != 3 {
		t.Errorf("mapped %v", m.ByteSlice())
	}
	m.ByteSlice()[1] = 99
	_, err = s.queue.EnqueueUnmapMemObject(b, m, nil)
	s.ok(err)
	pattern := uint16(0x0a0b)
	_, err = s.queue.EnqueueFillBuffer(b, unsafe.Pointer(&pattern), 2, 4, 4, nil)
	s.ok(err)
	got := make([]byte, 8)
	_, err = s.queue.EnqueueReadBuffer(b, true, 0, 8, unsafe.Pointer(&got[0]), nil)
	s.ok(err)
	if want := [8]byte{1, 2, 3, 99, 0x0b, 0x0a, 0x0b, 0x0a}; [8]byte(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, _, err := s.queue.EnqueueMapBuffer(b, true, MapFlagRead, 4, 8, nil); err != ErrInvalidValue {
		t.Errorf("map beyond the end: %v", err)
	}
}

func TestImages(t *testing.T) {
	s := newSetup(t, 0)
	if !s.device.ImageSupport() {
		t.Skip("the device has no images")
	}
	formats, err := s.context.GetSupportedImageFormats(MemReadOnly, MemObjectTypeImage2D)
	s.ok(err)
	if len(formats) == 0 {
		t.Error("no image formats")
	}
	img := image.NewRGBA(image.Rect(0, 0, 4, 3))
	img.Set(2, 1, color.RGBA{1, 2, 3, 255})
	o, err := s.context.CreateImageFromImage(MemReadOnly|MemCopyHostPtr, img.SubImage(image.Rect(0, 0, 3, 3)))
	s.ok(err)
	row := make([]byte, 16) // one row of two pixels with a pitch of 16
	_, err = s.queue.EnqueueReadImage(o, true, [3]int{1, 1, 0}, [3]int{2, 1, 1}, 16, 0, row, nil)
	s.ok(err)
	if row[4] != 1 || row[5] != 2 || row[6] != 3 {
		t.Errorf("row %v", row)
	}
	m, _, err := s.queue.EnqueueMapImage(o, true, MapFlagRead|MapFlagWrite, [3]int{2, 1, 0}, [3]int{1, 2, 1}, nil)
	s.ok(err)
	if m.RowPitch() != 4 || m.ByteSlice()[2] != 3 {
		t.Errorf("mapped %v, pitch %d", m.ByteSlice(), m.RowPitch())
	}
	m.ByteSlice()[4] = 77
	_, err = s.queue.EnqueueUnmapMemObject(o, m, nil)
	s.ok(err)
	_, err = s.queue.EnqueueReadImage(o, true, [3]int{2, 2, 0}, [3]int{1, 1, 1}, 0, 0, row, nil)
	s.ok(err)
	if row[0] != 77 {
		t.Errorf("pixel %v", row[:4])
	}
}

func TestUserEvent(t *testing.T) {
	s := newSetup(t, CommandQueueOutOfOrderExecModeEnable)
	b, err := s.context.CreateEmptyBuffer(MemReadWrite, 4)
	s.ok(err)
	e, err := s.context.CreateUserEvent()
	s.ok(err)
	done := make(chan error, 1)
	go func() {
		w, err := s.queue.EnqueueWriteBuffer(b, false, 0, 4, unsafe.Pointer(&[4]byte{5}), []*Event{e})
		if err == nil {
			err = WaitForEvents([]*Event{w})
		}
		done <- err
	}()
	s.ok(e.SetUserEventStatus(int(CommmandExecStatusComplete)))
	s.ok(<-done)
	if err := e.SetUserEventStatus(0); err != ErrInvalidOperation {
		t.Errorf("set twice: %v", err)
	}
	bad, err := s.context.CreateUserEvent()
	s.ok(err)
	s.ok(bad.SetUserEventStatus(-5))
	if _, err := s.queue.EnqueueMarkerWithWaitList([]*Event{bad}); err != ErrExecStatusErrorForEventsInWaitList {
		t.Errorf("waiting for a failed event: %v", err)
	}
	_, err = s.queue.EnqueueBarrierWithWaitList(nil)
	s.ok(err)
	s.ok(s.queue.Flush())
	s.ok(s.queue.Finish())
}

// TestRecorded restores a program's objects into a new context by their order.
func TestRecorded(t *testing.T) {
	run := func(s *setup) (in, out *MemObject, k *Kernel) {
		in, err := s.context.CreateBuffer(MemReadOnly|MemCopyHostPtr, gpustate.Bytes([]float32{1, 2, 3}))
		s.ok(err)
		out, err = s.context.CreateEmptyBuffer(MemReadWrite, 12)
		s.ok(err)
		return in, out, s.kernel("square")
	}
	first := newSetup(t, 0)
	in, out, k := run(first)
	first.ok(k.SetArgs(in, out, uint32(3)))
	_, err := first.queue.EnqueueWriteBufferFloat32(in, true, 0, []float32{5, 6, 7}, nil)
	first.ok(err)
	c, err := first.context.State().Capture(context.Background(), nil)
	first.ok(err)
	again := newSetup(t, 0)
	_, out, k = run(again)
	again.ok(again.context.State().Restore(context.Background(), c.Record(), func(i int, dst []byte, off int64) error {
		return c.ReadAt(context.Background(), i, dst, off)
	}))
	again.ok(c.Release())
	again.ok(again.context.State().MigrateTo(context.Background(), gpustate.Select{Kind: "opencl"}))
	_, err = again.queue.EnqueueNDRangeKernel(k, nil, []int{3}, nil, nil)
	again.ok(err)
	got := make([]float32, 3)
	_, err = again.queue.EnqueueReadBufferFloat32(out, true, 0, got, nil)
	again.ok(err)
	if got[0] != 25 || got[2] != 49 {
		t.Errorf("got %v, want 25 36 49", got)
	}
}

// TestRestoredFirst restores before the program makes its objects: what they begin with on
// the first start does not take the place of what they hold.
func TestRestoredFirst(t *testing.T) {
	run := func(s *setup) (b, picture *MemObject) {
		b, err := s.context.CreateBuffer(MemReadWrite|MemCopyHostPtr, []byte{1, 2, 3, 4})
		s.ok(err)
		picture, err = s.context.CreateImageSimple(MemReadWrite, 1, 1, ChannelOrderRGBA, ChannelDataTypeUNormInt8,
			[]byte{1, 2, 3, 4})
		s.ok(err)
		return b, picture
	}
	bytes := func(s *setup, b, picture *MemObject) (got [8]byte) {
		_, err := s.queue.EnqueueReadBuffer(b, true, 0, 4, unsafe.Pointer(&got[0]), nil)
		s.ok(err)
		_, err = s.queue.EnqueueReadImage(picture, true, [3]int{}, [3]int{1, 1, 1}, 0, 0, got[4:], nil)
		s.ok(err)
		return got
	}
	first := newSetup(t, 0)
	b, picture := run(first)
	if got := bytes(first, b, picture); got != [8]byte{1, 2, 3, 4, 1, 2, 3, 4} {
		t.Errorf("new objects hold %v", got)
	}
	_, err := first.queue.EnqueueWriteBuffer(b, true, 0, 4, unsafe.Pointer(&[]byte{5, 6, 7, 8}[0]), nil)
	first.ok(err)
	_, err = first.queue.EnqueueWriteImage(picture, true, [3]int{}, [3]int{1, 1, 1}, 0, 0, []byte{5, 6, 7, 8}, nil)
	first.ok(err)
	c, err := first.context.State().Capture(context.Background(), nil)
	first.ok(err)
	defer c.Release()
	read := func(i int, dst []byte, off int64) error { return c.ReadAt(context.Background(), i, dst, off) }

	again := newSetup(t, 0)
	again.ok(again.context.State().Restore(context.Background(), c.Record(), read))
	b, picture = run(again)
	if got := bytes(again, b, picture); got != [8]byte{5, 6, 7, 8, 5, 6, 7, 8} {
		t.Errorf("restored objects hold %v", got)
	}
	b, picture = run(again) // these are new
	if got := bytes(again, b, picture); got != [8]byte{1, 2, 3, 4, 1, 2, 3, 4} {
		t.Errorf("new objects beside the restored ones hold %v", got)
	}
}

// TestProperties calls every property once: none may fail.
func TestProperties(t *testing.T) {
	s := newSetup(t, 0)
	d := s.device
	if d.Name() == "" || d.Version() == "" || d.MaxComputeUnits() < 1 || d.GlobalMemSize() <= 0 ||
		len(d.MaxWorkItemSizes()) != d.MaxWorkItemDimensions() || !d.Available() {
		t.Errorf("%q %q %d %d %v %v", d.Name(), d.Version(), d.MaxComputeUnits(), d.GlobalMemSize(),
			d.MaxWorkItemSizes(), d.Available())
	}
	t.Log(d.Type(), d.DoubleFPConfig(), d.LocalMemType(), d.ExecutionCapabilities(), d.GlobalMemCacheType(),
		ChannelOrderRGBA, ChannelDataTypeFloat, d.Extensions())
	if DeviceTypeCPU.String() != "CPU" || (DeviceTypeCPU|DeviceTypeGPU).String() != "CPU|GPU" {
		t.Errorf("DeviceType.String: %s", DeviceTypeCPU|DeviceTypeGPU)
	}
}
