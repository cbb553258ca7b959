package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// The first eight bytes of a record, and the version that Encode writes. Decode
// reads it and all before it.
const (
	Magic   = "HFGPUOBJ"
	Version = 2
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
	var w writer
	w.b = append(w.b, Magic...)
	w.b = binary.LittleEndian.AppendUint32(w.b, Version)
	w.body(func(w *writer) { encodeInfo(w, &r.Device) })
	w.uint(r.Origin)
	w.uint(uint64(len(r.Objects)))
	for i := range r.Objects {
		w.body(r.Objects[i].encode)
	}
	return binary.LittleEndian.AppendUint32(w.b, crc32.Checksum(w.b, castagnoli))
}

func encodeInfo(w *writer, i *driver.Info) {
	for _, s := range []string{i.Kind, i.Platform, i.Vendor, i.Name, i.Version, i.Type, i.UUID, i.PCI, i.Arch} {
		w.str(s)
	}
	w.int(int64(i.Index))
	w.int(i.GlobalBytes)
	w.int(i.MaxAllocBytes)
	w.bool(i.FP64)
}

func (o *Object) encode(w *writer) {
	switch {
	case o.Mem != nil:
		w.uint(tagMem)
	case o.Sampler != nil:
		w.uint(tagSampler)
	case o.Program != nil:
		w.uint(tagProgram)
	case o.Kernel != nil:
		w.uint(tagKernel)
	case o.Queue != nil:
		w.uint(tagQueue)
	}
	w.uint(o.ID)
	w.str(o.Name)
	switch {
	case o.Mem != nil:
		o.Mem.encode(w)
	case o.Sampler != nil:
		w.bool(o.Sampler.Normalized)
		w.uint(uint64(o.Sampler.Addressing))
		w.uint(uint64(o.Sampler.Filter))
	case o.Program != nil:
		w.str(o.Program.OpenCL)
		w.str(o.Program.CUDA)
		w.str(o.Program.Options)
		w.str(string(o.Program.PTX))
		w.str(string(o.Program.IL))
	case o.Kernel != nil:
		o.Kernel.encode(w)
	case o.Queue != nil:
		w.bool(o.Queue.OutOfOrder)
		w.bool(o.Queue.Profiling)
		w.int(int64(o.Queue.Priority))
		w.int(int64(o.Queue.Window))
	}
	w.uint(o.Ordinal)
	w.bool(o.Released)
}

func (m *Mem) encode(w *writer) {
	w.uint(uint64(m.Kind))
	w.uint(uint64(m.Access))
	w.int(m.Bytes)
	w.uint(m.Parent)
	w.int(m.Offset)
	i := m.Image
	for _, v := range []int{i.Dims, i.Width, i.Height, i.Depth, int(i.Order), int(i.Type)} {
		w.int(int64(v))
	}
}

func (k *Kernel) encode(w *writer) {
	w.uint(k.Program)
	w.str(k.Function)
	w.uint(uint64(len(k.Args)))
	for _, a := range k.Args {
		w.uint(uint64(a.Kind))
		w.uint(a.Object)
		w.int(a.Local)
		w.str(string(a.Value))
	}
}

// Decode reads a record. It trusts nothing: lengths are bounded by the bytes
// there are, and references must point to an object of the right kind.
func Decode(b []byte) (*Record, error) {
	if len(b) < len(Magic)+8 || string(b[:len(Magic)]) != Magic {
		return nil, fmt.Errorf("%w: no magic", ErrCorrupt)
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	version := binary.LittleEndian.Uint32(b[len(Magic):])
	if version < 1 || version > Version {
		return nil, fmt.Errorf("GPU object record of version %d: this library reads versions 1 to %d", version, Version)
	}
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("%w: checksum", ErrCorrupt)
	}
	rd := &reader{b: body[len(Magic)+4:]}
	rec := &Record{}
	rd.body(func(rd *reader) { decodeInfo(rd, &rec.Device) })
	if version >= 2 {
		rec.Origin = rd.uint()
	}
	for range rd.count() {
		var o Object
		rd.body(func(rd *reader) {
			o.decode(rd)
			if version >= 2 {
				o.Ordinal, o.Released = rd.uint(), rd.bool()
			}
		})
		rec.Objects = append(rec.Objects, o)
	}
	if rd.err == nil && len(rd.b) != 0 {
		rd.fail("bytes after the last object")
	}
	if rd.err != nil {
		return nil, rd.err
	}
	return rec, rec.check(version)
}

func decodeInfo(r *reader, i *driver.Info) {
	for _, s := range []*string{&i.Kind, &i.Platform, &i.Vendor, &i.Name, &i.Version, &i.Type, &i.UUID, &i.PCI,
		&i.Arch} {
		*s = r.str()
	}
	i.Index = int(r.int())
	i.GlobalBytes = r.int()
	i.MaxAllocBytes = r.int()
	i.FP64 = r.bool()
}

func (o *Object) decode(r *reader) {
	tag := r.uint()
	o.ID = r.uint()
	o.Name = r.str()
	switch tag {
	case tagMem:
		o.Mem = &Mem{}
		o.Mem.decode(r)
	case tagSampler:
		o.Sampler = &driver.SamplerDesc{Normalized: r.bool(), Addressing: r.uint32(), Filter: r.uint32()}
	case tagProgram:
		o.Program = &Program{OpenCL: r.str(), CUDA: r.str(), Options: r.str(),
			PTX: []byte(r.str()), IL: []byte(r.str())}
	case tagKernel:
		o.Kernel = &Kernel{}
		o.Kernel.decode(r)
	case tagQueue:
		o.Queue = &Queue{OutOfOrder: r.bool(), Profiling: r.bool(),
			Priority: int(r.int()), Window: int(r.int())}
	default:
		r.fail(fmt.Sprintf("object of unknown kind %d", tag))
	}
}

func (m *Mem) decode(r *reader) {
	m.Kind = driver.MemKind(r.uint32())
	m.Access = driver.Access(r.uint32())
	m.Bytes = r.int()
	m.Parent = r.uint()
	m.Offset = r.int()
	i := &m.Image
	i.Dims, i.Width, i.Height, i.Depth = int(r.int()), int(r.int()), int(r.int()), int(r.int())
	i.Order, i.Type = uint32(r.int()), uint32(r.int())
}

func (k *Kernel) decode(r *reader) {
	k.Program = r.uint()
	k.Function = r.str()
	for range r.count() {
		k.Args = append(k.Args, Arg{Kind: driver.ArgKind(r.uint32()), Object: r.uint(),
			Local: r.int(), Value: []byte(r.str())})
	}
}

// writer appends fields.
type writer struct{ b []byte }

func (w *writer) uint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) int(v int64)   { w.b = binary.AppendVarint(w.b, v) }

func (w *writer) bool(v bool) {
	if v {
		w.uint(1)
	} else {
		w.uint(0)
	}
}

func (w *writer) str(s string) {
	w.uint(uint64(len(s)))
	w.b = append(w.b, s...)
}

// body writes what do writes, with its length before it, so that a reader can
// pass over fields that later versions add.
func (w *writer) body(do func(*writer)) {
	var in writer
	do(&in)
	w.str(string(in.b))
}

// reader takes fields off; after the first error it gives zero values.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrCorrupt, what)
	}
	r.b = nil
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("cut short")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) uint32() uint32 {
	v := r.uint()
	if v > math.MaxUint32 {
		r.fail("number out of range")
		return 0
	}
	return uint32(v)
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("cut short")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bool() bool { return r.uint() != 0 }

func (r *reader) str() string {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail("length beyond the end")
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

// count is a number of things that follow, each at least one byte long.
func (r *reader) count() int {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail("count beyond the end")
		return 0
	}
	return int(n)
}

func (r *reader) body(do func(*reader)) {
	in := &reader{b: []byte(r.str())}
	if r.err != nil {
		return
	}
	do(in)
	if in.err != nil {
		r.err, r.b = in.err, nil
	}
}
