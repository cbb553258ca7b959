package wire

import (
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/codec"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// Welcome is the first frame of a server.
type Welcome struct {
	Server  string   // the server's name, for messages
	Addrs   []string // where other servers reach it
	Devices []driver.Info
	Quota   int64 // bytes of device memory for one client, 0 without a bound
}

// Op is opWelcome.
func (*Welcome) Op() Op { return opWelcome }

// Encode appends the fields.
func (m *Welcome) Encode(w *Writer) {
	w.Str(m.Server)
	encodeAddrs(w, m.Addrs)
	w.Int(m.Quota)
	w.Uint(uint64(len(m.Devices)))
	for i := range m.Devices {
		encodeInfo(w, &m.Devices[i])
	}
}

// Decode takes the fields off.
func (m *Welcome) Decode(r *Reader) {
	m.Server, m.Addrs, m.Quota = r.Str(), decodeAddrs(r), r.Size()
	for range r.Count() {
		var i driver.Info
		decodeInfo(r, &i)
		m.Devices = append(m.Devices, i)
	}
}

func encodeAddrs(w *Writer, addrs []string) {
	w.Uint(uint64(len(addrs)))
	for _, a := range addrs {
		w.Str(a)
	}
}

func decodeAddrs(r *Reader) (addrs []string) {
	for range r.Small(maxAddrs) {
		addrs = append(addrs, r.Str())
	}
	return addrs
}

// Open asks for a device and says who asks.
type Open struct {
	Req     uint64
	Index   int // in Welcome.Devices
	Program string
	Host    string
	PID     int
	Label   string // the job and rank, or what the user likes
	Unmoved bool   // the client cannot move to another device
}

// Op is OpOpen.
func (*Open) Op() Op { return OpOpen }

// Encode appends the fields.
func (m *Open) Encode(w *Writer) {
	w.Uint(m.Req)
	w.Int(int64(m.Index))
	w.Str(m.Program)
	w.Str(m.Host)
	w.Int(int64(m.PID))
	w.Str(m.Label)
	w.Bool(m.Unmoved)
}

// Decode takes the fields off.
func (m *Open) Decode(r *Reader) {
	*m = Open{r.Uint(), int(r.Size()), r.Str(), r.Str(), int(r.Size()), r.Str(), r.Bool()}
}

// CreateMem makes a memory object. Parent is the number of a buffer, or of the
// program that has the variable Name.
type CreateMem struct {
	Req, ID uint64
	codec.Mem
	Name string
}

// Op is opCreateMem.
func (*CreateMem) Op() Op { return opCreateMem }

// Encode appends the fields.
func (m *CreateMem) Encode(w *Writer) {
	w.Uint(m.Req)
	w.Uint(m.ID)
	w.Mem(&m.Mem)
	w.Str(m.Name)
}

// Decode takes the fields off.
func (m *CreateMem) Decode(r *Reader) { *m = CreateMem{r.Uint(), r.Uint(), r.Mem(), r.Str()} }

// CreateSampler makes a sampler.
type CreateSampler struct {
	Req, ID uint64
	Desc    driver.SamplerDesc
}

// Op is opCreateSampl.
func (*CreateSampler) Op() Op { return opCreateSampl }

// Encode appends the fields.
func (m *CreateSampler) Encode(w *Writer) {
	w.Uint(m.Req)
	w.Uint(m.ID)
	w.Sampler(&m.Desc)
}

// Decode takes the fields off.
func (m *CreateSampler) Decode(r *Reader) { *m = CreateSampler{r.Uint(), r.Uint(), r.Sampler()} }

// Build builds a program. The reply says why the source was built although there is a
// binary form, or has an empty text.
type Build struct {
	Req, ID uint64
	Desc    driver.ProgramDesc
}

// Op is OpBuild.
func (*Build) Op() Op { return OpBuild }

// Encode appends the fields.
func (m *Build) Encode(w *Writer) {
	w.Uint(m.Req)
	w.Uint(m.ID)
	w.Str(m.Desc.Name)
	w.Str(m.Desc.OpenCL)
	w.Str(m.Desc.CUDA)
	w.Bytes(m.Desc.PTX)
	w.Bytes(m.Desc.IL)
	w.Str(m.Desc.Options)
}

// Decode takes the fields off. What it gives does not share memory with the
// frame.
func (m *Build) Decode(r *Reader) {
	m.Req, m.ID = r.Uint(), r.Uint()
	m.Desc = driver.ProgramDesc{Name: r.Str(), OpenCL: r.Str(), CUDA: r.Str(),
		PTX: []byte(r.Str()), IL: []byte(r.Str()), Options: r.Str()}
}

// CreateKernel makes a kernel of a program. The reply has the number of its
// arguments plus one, 0 where the API does not tell.
type CreateKernel struct {
	Req, ID, Program uint64
	Name             string
}

// Op is opCreateKern.
func (*CreateKernel) Op() Op { return opCreateKern }

// Encode appends the fields.
func (m *CreateKernel) Encode(w *Writer) {
	w.Uint(m.Req)
	w.Uint(m.ID)
	w.Uint(m.Program)
	w.Str(m.Name)
}

// Decode takes the fields off.
func (m *CreateKernel) Decode(r *Reader) { *m = CreateKernel{r.Uint(), r.Uint(), r.Uint(), r.Str()} }

// CreateQueue makes a queue.
type CreateQueue struct {
	Req, ID uint64
	Desc    driver.QueueDesc
}

// Op is opCreateQueue.
func (*CreateQueue) Op() Op { return opCreateQueue }

// Encode appends the fields.
func (m *CreateQueue) Encode(w *Writer) {
	w.Uint(m.Req)
	w.Uint(m.ID)
	w.Bool(m.Desc.OutOfOrder)
	w.Bool(m.Desc.Profiling)
	w.Bool(m.Desc.Lazy)
	w.Int(int64(m.Desc.Priority))
}

// Decode takes the fields off.
func (m *CreateQueue) Decode(r *Reader) {
	m.Req, m.ID = r.Uint(), r.Uint()
	m.Desc = driver.QueueDesc{OutOfOrder: r.Bool(), Profiling: r.Bool(), Lazy: r.Bool(), Priority: int(r.Int())}
}

// Release releases an object of any kind.
type Release struct{ ID uint64 }

// Op is opRelease.
func (*Release) Op() Op { return opRelease }

// Encode appends the fields.
func (m *Release) Encode(w *Writer) { w.Uint(m.ID) }

// Decode takes the fields off.
func (m *Release) Decode(r *Reader) { m.ID = r.Uint() }

// Reply answers the request of that number. Body depends on the request.
type Reply struct {
	Req  uint64
	Err  error
	Body []byte
}

// Op is OpReply.
func (*Reply) Op() Op { return OpReply }

// Encode appends the fields.
func (m *Reply) Encode(w *Writer) {
	w.Uint(m.Req)
	encodeError(w, m.Err)
	w.Bytes(m.Body)
}

// Decode takes the fields off. What it gives does not share memory with the
// frame.
func (m *Reply) Decode(r *Reader) {
	m.Req, m.Err = r.Uint(), decodeError(r)
	m.Body = append([]byte(nil), r.Bytes()...)
}

// Done says that a command, or one piece of a transfer, is complete.
type Done struct {
	Event uint64
	Slot  int   // plus one; 0: no slot
	Bytes int64 // that follow the frame: of a piece that was read through TCP
	Err   error
	Times *driver.Times // of a command of a queue with profiling
}

// Op is OpDone.
func (*Done) Op() Op { return OpDone }

// Encode appends the fields.
func (m *Done) Encode(w *Writer) {
	w.Uint(m.Event)
	w.Uint(uint64(m.Slot))
	w.Int(m.Bytes)
	encodeError(w, m.Err)
	w.Bool(m.Times != nil)
	if t := m.Times; t != nil {
		for _, v := range []time.Duration{t.Queued, t.Submit, t.Start, t.End} {
			w.Int(int64(v))
		}
	}
}

// Decode takes the fields off.
func (m *Done) Decode(r *Reader) {
	m.Event, m.Slot, m.Bytes, m.Err = r.Uint(), r.Small(Slots), r.Size(), decodeError(r)
	if m.Bytes > SlotBytes {
		r.Fail("a piece larger than a slot")
	}
	if m.Times = nil; r.Bool() {
		m.Times = &driver.Times{Queued: time.Duration(r.Int()), Submit: time.Duration(r.Int()),
			Start: time.Duration(r.Int()), End: time.Duration(r.Int())}
	}
}

// Move asks the client to move to another server, or to another device of this
// one. To is the text of a selection.
type Move struct {
	Token uint64
	To    string
}

// Op is OpMove.
func (*Move) Op() Op { return OpMove }

// Encode appends the fields.
func (m *Move) Encode(w *Writer) {
	w.Uint(m.Token)
	w.Str(m.To)
}

// Decode takes the fields off.
func (m *Move) Decode(r *Reader) { *m = Move{r.Uint(), r.Str()} }

// Moved answers Move: how it went, and how long its steps took as JSON.
type Moved struct {
	Token uint64
	Err   string
	Steps string
}

// Op is opMoved.
func (*Moved) Op() Op { return opMoved }

// Encode appends the fields.
func (m *Moved) Encode(w *Writer) {
	w.Uint(m.Token)
	w.Str(m.Err)
	w.Str(m.Steps)
}

// Decode takes the fields off.
func (m *Moved) Decode(r *Reader) { *m = Moved{r.Uint(), r.Str(), r.Str()} }

// Bye is the last frame of a server that ends a connection, and why.
type Bye struct{ Why string }

// Op is OpBye.
func (*Bye) Op() Op { return OpBye }

// Encode appends the fields.
func (m *Bye) Encode(w *Writer) { w.Str(m.Why) }

// Decode takes the fields off.
func (m *Bye) Decode(r *Reader) { m.Why = r.Str() }
