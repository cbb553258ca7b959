package wire

import (
	"math"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
	"github.com/holdfast-hpc/holdfast/internal/codec"
)

// Welcome is the first frame of a server.
type Welcome struct {
	Server  string // the server's name, for messages
	Devices []driver.Info
	Quota   int64 // bytes of device memory for one client, 0 without a bound
}

func (m *Welcome) fields(f *Fields) {
	f.Str(&m.Server)
	codec.Size(f, &m.Quota)
	codec.List(f, &m.Devices, math.MaxInt, func(i *driver.Info) { info(f, i) })
}

// Open asks for a device and names the program that asks.
type Open struct {
	Req     uint64
	Index   int // in Welcome.Devices
	Program string
	Host    string
	PID     int
	Label   string // the job and rank, or a text of the user
}

func (m *Open) fields(f *Fields) {
	f.Uint(&m.Req)
	codec.Size(f, &m.Index)
	f.Str(&m.Program, &m.Host)
	codec.Size(f, &m.PID)
	f.Str(&m.Label)
}

// CreateMem makes a memory object. Parent is the number of a buffer, or of the
// program that has the variable Name.
type CreateMem struct {
	Req, ID uint64
	driver.Mem
	Name string
}

func (m *CreateMem) fields(f *Fields) {
	f.Uint(&m.Req, &m.ID)
	record.PassMem(f, &m.Mem)
	f.Str(&m.Name)
}

// CreateSampler makes a sampler.
type CreateSampler struct {
	Req, ID uint64
	Desc    driver.SamplerDesc
}

func (m *CreateSampler) fields(f *Fields) {
	f.Uint(&m.Req, &m.ID)
	record.PassSampler(f, &m.Desc)
}

// Build builds a program. The reply has the reason why the source was built although there is a
// binary form, or an empty text.
type Build struct {
	Req, ID uint64
	Desc    driver.ProgramDesc
}

func (m *Build) fields(f *Fields) {
	f.Uint(&m.Req, &m.ID)
	f.Str(&m.Desc.Name, &m.Desc.OpenCL, &m.Desc.CUDA)
	f.Bytes(&m.Desc.PTX, &m.Desc.IL)
	f.Str(&m.Desc.Options)
}

// CreateKernel makes a kernel of a program. The reply has the number of its
// arguments, and false if it may have more.
type CreateKernel struct {
	Req, ID, Program uint64
	Name             string
}

func (m *CreateKernel) fields(f *Fields) {
	f.Uint(&m.Req, &m.ID, &m.Program)
	f.Str(&m.Name)
}

// CreateQueue makes a queue.
type CreateQueue struct {
	Req, ID uint64
	Desc    driver.QueueDesc
}

func (m *CreateQueue) fields(f *Fields) {
	f.Uint(&m.Req, &m.ID)
	f.Bool(&m.Desc.OutOfOrder, &m.Desc.Profiling, &m.Desc.Lazy)
	codec.Int(f, &m.Desc.Priority)
	codec.Size(f, &m.Desc.Window)
}

// Release releases an object of any kind.
type Release struct{ ID uint64 }

func (m *Release) fields(f *Fields) { f.Uint(&m.ID) }

// Reply answers the request of that number. Body depends on the request.
type Reply struct {
	Req  uint64
	Err  error
	Body []byte
}

func (m *Reply) fields(f *Fields) {
	f.Uint(&m.Req)
	failure(f, &m.Err)
	f.Bytes(&m.Body)
}

// Done reports that a command, or one piece of a transfer, is complete.
type Done struct {
	Event uint64
	Slot  int   // plus one; 0: no slot
	Bytes int64 // that follow the frame: of a piece that was read through TCP
	Err   error
	Times *driver.Times // of a command of a queue with profiling
}

func (m *Done) fields(f *Fields) {
	f.Uint(&m.Event)
	codec.Small(f, &m.Slot, Slots)
	codec.Size(f, &m.Bytes)
	failure(f, &m.Err)
	timed := m.Times != nil
	f.Bool(&timed)
	f.Check(m.Bytes <= SlotBytes, "a piece exceeds the slot size")
	if f.Reading {
		if m.Times = nil; timed {
			m.Times = &driver.Times{}
		}
	}
	if t := m.Times; t != nil {
		codec.Int(f, &t.Queued, &t.Submit, &t.Start, &t.End)
	}
}

// Move asks the client to move to another server, or to another device of this
// one. To is the text of a selection.
type Move struct {
	Token uint64
	To    string
}

func (m *Move) fields(f *Fields) {
	f.Uint(&m.Token)
	f.Str(&m.To)
}

// Moved answers Move: how it went, and how long its steps took as JSON.
type Moved struct {
	Token uint64
	Err   string
	Steps string
}

func (m *Moved) fields(f *Fields) {
	f.Uint(&m.Token)
	f.Str(&m.Err, &m.Steps)
}

// Bye is the last frame of a server that ends a connection, and why.
type Bye struct{ Why string }

func (m *Bye) fields(f *Fields) { f.Str(&m.Why) }

// info passes the description of a device.
func info(f *Fields, i *driver.Info) {
	record.PassNames(f, i)
	f.Str(&i.IL)
	codec.Size(f, &i.Index)
	codec.Size(f, &i.GlobalBytes, &i.MaxAllocBytes, &i.LocalBytes)
	codec.Size(f, &i.SubAlign, &i.MaxGroup)
	var serial bool // a server of before took no care of turns itself
	f.Bool(&i.FP64, &i.Images, &i.Shared, &i.OutOfOrder, &i.HostMemory, &i.Lazy, &serial)
	codec.Size(f, &i.MaxImage1D, &i.MaxImage2D[0], &i.MaxImage2D[1],
		&i.MaxImage3D[0], &i.MaxImage3D[1], &i.MaxImage3D[2], &i.MaxLayers)
}
