package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/codec"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// The first eight bytes of a record, and the version that Encode writes. Decode
// reads it and all before it.
const (
	magic  = "HFGPUOBJ"
	newest = 2
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
	var w codec.Writer
	w.B = append(w.B, magic...)
	w.B = binary.LittleEndian.AppendUint32(w.B, newest)
	encodeBody(&w, func(w *codec.Writer) { encodeInfo(w, &r.Device) })
	w.Uint(r.Origin)
	w.Uint(uint64(len(r.Objects)))
	for i := range r.Objects {
		encodeBody(&w, r.Objects[i].encode)
	}
	return binary.LittleEndian.AppendUint32(w.B, crc32.Checksum(w.B, castagnoli))
}

func encodeInfo(w *codec.Writer, i *driver.Info) {
	w.Names(i)
	w.Int(int64(i.Index))
	w.Int(i.GlobalBytes)
	w.Int(i.MaxAllocBytes)
	w.Bool(i.FP64)
}

func (o *Object) encode(w *codec.Writer) {
	switch {
	case o.Mem != nil:
		w.Uint(tagMem)
	case o.Sampler != nil:
		w.Uint(tagSampler)
	case o.Program != nil:
		w.Uint(tagProgram)
	case o.Kernel != nil:
		w.Uint(tagKernel)
	case o.Queue != nil:
		w.Uint(tagQueue)
	}
	w.Uint(o.ID)
	w.Str(o.Name)
	switch {
	case o.Mem != nil:
		w.Mem(o.Mem)
	case o.Sampler != nil:
		w.Sampler(o.Sampler)
	case o.Program != nil:
		w.Str(o.Program.OpenCL)
		w.Str(o.Program.CUDA)
		w.Str(o.Program.Options)
		w.Bytes(o.Program.PTX)
		w.Bytes(o.Program.IL)
	case o.Kernel != nil:
		o.Kernel.encode(w)
	case o.Queue != nil:
		w.Bool(o.Queue.OutOfOrder)
		w.Bool(o.Queue.Profiling)
		w.Int(int64(o.Queue.Priority))
		w.Int(int64(o.Queue.Window))
	}
	w.Uint(o.Ordinal)
	w.Bool(o.Released)
}

func (k *Kernel) encode(w *codec.Writer) {
	w.Uint(k.Program)
	w.Str(k.Function)
	w.Uint(uint64(len(k.Args)))
	for _, a := range k.Args {
		w.Uint(uint64(a.Kind))
		w.Uint(a.Object)
		w.Int(a.Local)
		w.Bytes(a.Value)
	}
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
		return nil, fmt.Errorf("GPU object record of version %d: this library reads versions 1 to %d", version, newest)
	}
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("%w: checksum", ErrCorrupt)
	}
	rd := &codec.Reader{B: body[len(magic)+4:]}
	rec := &Record{}
	decodeBody(rd, func(rd *codec.Reader) { decodeInfo(rd, &rec.Device) })
	if version >= 2 {
		rec.Origin = rd.Uint()
	}
	for range rd.Count() {
		var o Object
		decodeBody(rd, func(rd *codec.Reader) {
			o.decode(rd)
			if version >= 2 {
				o.Ordinal, o.Released = rd.Uint(), rd.Bool()
			}
		})
		rec.Objects = append(rec.Objects, o)
	}
	if err := rd.End(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return rec, rec.check(version)
}

func decodeInfo(r *codec.Reader, i *driver.Info) {
	r.Names(i)
	i.Index = int(r.Int())
	i.GlobalBytes = r.Int()
	i.MaxAllocBytes = r.Int()
	i.FP64 = r.Bool()
}

func (o *Object) decode(r *codec.Reader) {
	tag := r.Uint()
	o.ID = r.Uint()
	o.Name = r.Str()
	switch tag {
	case tagMem:
		m := r.Mem()
		o.Mem = &m
	case tagSampler:
		d := r.Sampler()
		o.Sampler = &d
	case tagProgram:
		o.Program = &Program{OpenCL: r.Str(), CUDA: r.Str(), Options: r.Str(),
			PTX: []byte(r.Str()), IL: []byte(r.Str())}
	case tagKernel:
		o.Kernel = &Kernel{}
		o.Kernel.decode(r)
	case tagQueue:
		o.Queue = &Queue{OutOfOrder: r.Bool(), Profiling: r.Bool(),
			Priority: int(r.Int()), Window: int(r.Int())}
	default:
		r.Fail(fmt.Sprintf("object of unknown kind %d", tag))
	}
}

func (k *Kernel) decode(r *codec.Reader) {
	k.Program = r.Uint()
	k.Function = r.Str()
	for range r.Count() {
		k.Args = append(k.Args, Arg{Kind: driver.ArgKind(r.Small(math.MaxUint8)), Object: r.Uint(),
			Local: r.Int(), Value: []byte(r.Str())})
	}
}

// encodeBody appends what do writes, with its length before it, so that a reader can
// pass over fields that later versions add.
func encodeBody(w *codec.Writer, do func(*codec.Writer)) {
	var in codec.Writer
	do(&in)
	w.Bytes(in.B)
}

func decodeBody(r *codec.Reader, do func(*codec.Reader)) {
	in := &codec.Reader{B: r.Bytes()}
	if r.Err != nil {
		return
	}
	if do(in); in.Err != nil {
		r.Err, r.B = in.Err, nil
	}
}
