package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/internal/codec"
)

// The first eight bytes of a record, and the version that Encode writes. Decode
// reads it and all before it.
const (
	magic  = "HFGPUOBJ"
	newest = 3
)

// Tags of objects.
const (
	tagMem     = 1
	tagSampler = 2
	tagProgram = 3
	tagKernel  = 4
	tagQueue   = 5
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode writes the record in the layout of docs/FORMAT.md.
func (r *Record) Encode() []byte {
	b := binary.LittleEndian.AppendUint32([]byte(magic), newest)
	b = append(b, codec.Encode(func(f *codec.Fields) { r.fields(f, newest) })...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Decode reads a record. It trusts nothing: lengths are bounded by the bytes
// there are, and references must point to an object of the right kind.
func Decode(b []byte) (*Record, error) {
	if len(b) < len(magic)+8 || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: no magic", ErrCorrupt)
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	version := binary.LittleEndian.Uint32(b[len(magic):])
	if version < 1 || version > newest {
		return nil, fmt.Errorf("GPU object record has version %d, this library reads 1 to %d", version, newest)
	}
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("%w: checksum", ErrCorrupt)
	}
	rec := &Record{}
	if err := codec.Decode(body[len(magic)+4:], func(f *codec.Fields) { rec.fields(f, version) }); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return rec, rec.check(version)
}

func (r *Record) fields(f *codec.Fields, version uint32) {
	f.Body(func(f *codec.Fields) {
		i := &r.Device
		PassNames(f, i)
		codec.Int(f, &i.Index)
		codec.Int(f, &i.GlobalBytes, &i.MaxAllocBytes)
		f.Bool(&i.FP64)
	})
	if version >= 2 {
		f.Uint(&r.Origin)
	}
	codec.List(f, &r.Objects, math.MaxInt, func(o *Object) {
		f.Body(func(f *codec.Fields) { o.fields(f, version) })
	})
}

func (o *Object) fields(f *codec.Fields, version uint32) {
	tag := o.tag()
	f.Uint(&tag, &o.ID)
	f.Str(&o.Name)
	if f.Reading {
		switch tag {
		case tagMem:
			o.Mem = &Mem{}
		case tagSampler:
			o.Sampler = &driver.SamplerDesc{}
		case tagProgram:
			o.Program = &Program{}
		case tagKernel:
			o.Kernel = &Kernel{}
		case tagQueue:
			o.Queue = &Queue{}
		}
	}
	switch {
	case o.Mem != nil:
		PassMem(f, o.Mem)
	case o.Sampler != nil:
		PassSampler(f, o.Sampler)
	case o.Program != nil:
		f.Str(&o.Program.OpenCL, &o.Program.CUDA, &o.Program.Options)
		f.Bytes(&o.Program.PTX, &o.Program.IL)
	case o.Kernel != nil:
		f.Uint(&o.Kernel.Program)
		f.Str(&o.Kernel.Function)
		codec.List(f, &o.Kernel.Args, math.MaxInt, func(a *Arg) {
			codec.Small(f, &a.Kind, math.MaxUint8)
			f.Uint(&a.Object)
			codec.Int(f, &a.Local)
			f.Bytes(&a.Value)
		})
	case o.Queue != nil:
		f.Bool(&o.Queue.OutOfOrder, &o.Queue.Profiling)
		codec.Int(f, &o.Queue.Priority, &o.Queue.Window)
	default:
		f.Check(false, fmt.Sprintf("unknown object kind %d", tag))
	}
	if version >= 2 {
		f.Uint(&o.Ordinal)
		f.Bool(&o.Released)
	}
}

// tag returns the number of the object's kind, setKind its reverse.
func (o *Object) tag() uint64 {
	switch {
	case o.Mem != nil:
		return tagMem
	case o.Sampler != nil:
		return tagSampler
	case o.Program != nil:
		return tagProgram
	case o.Kernel != nil:
		return tagKernel
	case o.Queue != nil:
		return tagQueue
	}
	return 0
}

// PassMem passes a memory object, in records and in messages.
func PassMem(f *codec.Fields, m *driver.Mem) {
	codec.Small(f, &m.Kind, math.MaxUint8)
	codec.Small(f, &m.Access, math.MaxUint8)
	codec.Size(f, &m.Bytes)
	f.Uint(&m.Parent)
	codec.Size(f, &m.Offset)
	i := &m.Image
	shape := i.Shape()
	codec.Size(f, &shape, &i.Width, &i.Height, &i.Depth)
	i.SetShape(shape)
	codec.Size(f, &i.Order, &i.Type)
}

// PassSampler passes a sampler in the same way.
func PassSampler(f *codec.Fields, s *driver.SamplerDesc) {
	f.Bool(&s.Normalized)
	codec.Small(f, &s.Addressing, math.MaxUint32)
	codec.Small(f, &s.Filter, math.MaxUint32)
}

// PassNames passes the texts that describe a device in the same way.
func PassNames(f *codec.Fields, i *driver.Info) {
	f.Str(&i.Kind, &i.Platform, &i.Vendor, &i.Name, &i.Version, &i.Type, &i.UUID, &i.PCI, &i.Arch)
}
