package cl

import (
	"image"
	"strings"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// Context owns the objects made with it.
type Context struct {
	dev   *gpustate.Device
	fills *gpustate.Queue // first contents of memory objects
}

// CreateContext makes a context of one device, and opens it. Several devices are ErrUnsupported: make a context for
// each. The caller releases it.
func CreateContext(devices []*Device) (*Context, error) {
	d, err := one(devices)
	if err != nil {
		return nil, err
	}
	i := d.info
	dev, err := gpustate.Open(gpustate.Select{Kind: "opencl", Platform: i.Platform, Name: i.Name, PCI: i.PCI,
		Index: position(i)})
	if err != nil {
		return nil, toError(err)
	}
	fills, err := dev.Queue("cl: first contents")
	if err != nil {
		return nil, toError(err)
	}
	return &Context{dev: dev, fills: fills}, nil
}

// position returns the device's place among those with the same description.
func position(i gpustate.Info) int {
	infos, err := gpustate.Devices()
	if err != nil {
		return 0
	}
	n := 0
	for _, o := range infos {
		if o.Kind == i.Kind && o.Index < i.Index && same(o.Platform, i.Platform) && same(o.Name, i.Name) &&
			same(o.PCI, i.PCI) {
			n++
		}
	}
	return n
}

func same(a, b string) bool { return strings.Contains(strings.ToLower(a), strings.ToLower(b)) }

// State returns the device behind the context, for capture, restore and migration.
func (ctx *Context) State() *gpustate.Device { return ctx.dev }

// Release waits for the commands of the context, and releases it and all objects made with it.
func (ctx *Context) Release() { _ = ctx.dev.Close() }

// MemObject is a buffer or an image.
type MemObject struct {
	buf *gpustate.Buffer
	img *gpustate.Image
}

// Release gives the memory back.
func (b *MemObject) Release() {
	if b.buf != nil {
		_ = b.buf.Release()
	} else {
		_ = b.img.Release()
	}
}

func access(flags MemFlag) gpustate.Access {
	switch {
	case flags&MemReadOnly != 0:
		return gpustate.ReadOnly
	case flags&MemWriteOnly != 0:
		return gpustate.WriteOnly
	}
	return gpustate.ReadWrite
}

// CreateBufferUnsafe makes a buffer of size bytes. With MemCopyHostPtr or
// MemUseHostPtr it begins with the bytes at dataPtr, unless a restore has brought its
// contents; the memory there is not used afterwards.
func (ctx *Context) CreateBufferUnsafe(flags MemFlag, size int, dataPtr unsafe.Pointer) (*MemObject, error) {
	wants := flags&(MemCopyHostPtr|MemUseHostPtr) != 0
	if wants != (dataPtr != nil) {
		return nil, ErrInvalidHostPtr
	}
	if size <= 0 {
		return nil, ErrInvalidBufferSize
	}
	b, err := ctx.dev.BufferFor("", size, access(flags))
	if err != nil {
		return nil, toError(err)
	}
	if wants && !b.Restored() {
		if err := ctx.fills.Write(b, 0, unsafe.Slice((*byte)(dataPtr), size)); err != nil {
			_ = b.Release()
			return nil, toError(err)
		}
	}
	return &MemObject{buf: b}, nil
}

// CreateEmptyBuffer makes a buffer of size bytes with undefined contents.
func (ctx *Context) CreateEmptyBuffer(flags MemFlag, size int) (*MemObject, error) {
	return ctx.CreateBufferUnsafe(flags, size, nil)
}

// CreateBuffer makes a buffer that begins with a copy of data, as the flag MemCopyHostPtr or MemUseHostPtr says. It
// returns when the bytes are copied.
func (ctx *Context) CreateBuffer(flags MemFlag, data []byte) (*MemObject, error) {
	return ctx.CreateBufferUnsafe(flags, len(data), unsafe.Pointer(unsafe.SliceData(data)))
}

// CreateBufferFloat32 is CreateBuffer for numbers; the buffer has 4 bytes for each.
func (ctx *Context) CreateBufferFloat32(flags MemFlag, data []float32) (*MemObject, error) {
	return ctx.CreateBufferUnsafe(flags, 4*len(data), unsafe.Pointer(unsafe.SliceData(data)))
}

// GetSupportedImageFormats lists the formats of images of one to three dimensions. Other types are ErrUnsupported.
func (ctx *Context) GetSupportedImageFormats(flags MemFlag, imageType MemObjectType) ([]ImageFormat, error) {
	dims := dimensions(imageType)
	if dims == 0 {
		return nil, ErrUnsupported
	}
	list, err := ctx.dev.ImageFormats(access(flags), dims)
	formats := make([]ImageFormat, len(list))
	for i, f := range list {
		formats[i] = ImageFormat{ChannelOrder(f[0]), ChannelDataType(f[1])}
	}
	return formats, toError(err)
}

func dimensions(t MemObjectType) int {
	switch t {
	case MemObjectTypeImage1D:
		return 1
	case MemObjectTypeImage2D:
		return 2
	case MemObjectTypeImage3D:
		return 3
	}
	return 0
}

// CreateImage makes an image. data, if there is any, holds its pixels with the
// pitches of the description; a restored image keeps those it has.
func (ctx *Context) CreateImage(flags MemFlag, imageFormat ImageFormat, imageDesc ImageDescription,
	data []byte) (*MemObject, error) {
	dims := dimensions(imageDesc.Type)
	if dims == 0 || imageDesc.NumMipLevels != 0 || imageDesc.NumSamples != 0 {
		return nil, ErrUnsupported
	}
	i, err := ctx.dev.Image("", gpustate.ImageDesc{Dims: dims, Width: imageDesc.Width, Height: imageDesc.Height,
		Depth: imageDesc.Depth, Order: uint32(imageFormat.ChannelOrder), Type: uint32(imageFormat.ChannelDataType),
		Access: access(flags)})
	if err != nil {
		return nil, toError(err)
	}
	o := &MemObject{img: i}
	if data == nil {
		return o, nil
	}
	r := i.Whole()
	packed, err := pack(data, r.Size, i.PixelBytes(), imageDesc.RowPitch, imageDesc.SlicePitch)
	if err == nil && !i.Restored() {
		err = ctx.fills.WriteImage(i, r, packed)
	}
	if err != nil {
		o.Release()
		return nil, toError(err)
	}
	return o, nil
}

// CreateImageSimple makes a two-dimensional image, of width and height in pixels, from packed pixels.
func (ctx *Context) CreateImageSimple(flags MemFlag, width, height int, channelOrder ChannelOrder,
	channelDataType ChannelDataType, data []byte) (*MemObject, error) {
	return ctx.CreateImage(flags, ImageFormat{channelOrder, channelDataType},
		ImageDescription{Type: MemObjectTypeImage2D, Width: width, Height: height}, data)
}

// CreateImageFromImage makes a two-dimensional image from a Go one: gray ones
// as intensity, others as RGBA.
func (ctx *Context) CreateImageFromImage(flags MemFlag, img image.Image) (*MemObject, error) {
	b := img.Bounds()
	as := func(order ChannelOrder, pitch int, pixels []byte) (*MemObject, error) {
		return ctx.CreateImage(flags, ImageFormat{order, ChannelDataTypeUNormInt8},
			ImageDescription{Type: MemObjectTypeImage2D, Width: b.Dx(), Height: b.Dy(), RowPitch: pitch}, pixels)
	}
	switch m := img.(type) {
	case *image.Gray:
		return as(ChannelOrderIntensity, m.Stride, m.Pix)
	case *image.RGBA:
		return as(ChannelOrderRGBA, m.Stride, m.Pix)
	}
	data := make([]byte, 0, 4*b.Dx()*b.Dy())
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			red, green, blue, alpha := img.At(x, y).RGBA()
			data = append(data, byte(red>>8), byte(green>>8), byte(blue>>8), byte(alpha>>8))
		}
	}
	return as(ChannelOrderRGBA, 0, data)
}

// CreateCommandQueue makes a queue. device is ignored: a context has one.
func (ctx *Context) CreateCommandQueue(device *Device, properties CommandQueueProperty) (*CommandQueue, error) {
	q, err := ctx.dev.QueueWith("", gpustate.QueueOptions{
		OutOfOrder: properties&CommandQueueOutOfOrderExecModeEnable != 0,
		Profiling:  properties&CommandQueueProfilingEnable != 0,
	})
	if err != nil {
		return nil, toError(err)
	}
	return &CommandQueue{q: q, outOfOrder: properties&CommandQueueOutOfOrderExecModeEnable != 0}, nil
}

// CreateProgramWithSource makes a program of these texts; BuildProgram builds
// it.
func (ctx *Context) CreateProgramWithSource(sources []string) (*Program, error) {
	if len(sources) == 0 {
		return nil, ErrInvalidValue
	}
	return &Program{ctx: ctx, source: strings.Join(sources, "")}, nil
}

// CreateUserEvent makes an event that the program itself completes.
func (ctx *Context) CreateUserEvent() (*Event, error) {
	return &Event{user: make(chan struct{})}, nil
}
