package wire

import (
	"math"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
	"github.com/holdfast-hpc/holdfast/internal/codec"
)

// Arg is a kernel argument with the object's number.
type Arg = record.Arg

// SetArg sets an argument. It has no reply: an error fails the next launch of the kernel.
type SetArg struct {
	Kernel uint64
	Index  int
	Arg    Arg
}

// fields passes the fields. The value lies in the body.
func (m *SetArg) fields(f *Fields) {
	if f.Reading {
		*m = SetArg{}
	}
	f.Uint(&m.Kernel)
	codec.Small(f, &m.Index, MaxArgs-1)
	codec.Small(f, &m.Arg.Kind, math.MaxUint8)
	switch m.Arg.Kind {
	case driver.ArgMem, driver.ArgSampler:
		f.Uint(&m.Arg.Object)
	case driver.ArgLocal:
		codec.Size(f, &m.Arg.Local)
	case driver.ArgValue:
		f.Alias(&m.Arg.Value)
	case driver.ArgNull:
	default:
		f.Check(false, "unknown argument kind")
	}
}

// Launch runs a kernel. Event is 0 on a lazy queue.
type Launch struct {
	Queue, Kernel, Event uint64
	Grid                 driver.Grid
	Wait                 []driver.Event
}

func (m *Launch) fields(f *Fields) {
	f.Uint(&m.Queue, &m.Kernel, &m.Event)
	g := &m.Grid
	codec.Small(f, &g.Dims, 3)
	if f.Reading {
		*g = driver.Grid{Dims: g.Dims, Global: [3]int{1, 1, 1}, Local: [3]int{1, 1, 1}}
	}
	f.Check(g.Dims > 0, "launch without dimensions")
	for i := range min(g.Dims, 3) {
		n, group := &g.Global[i], &g.Local[i]
		codec.Size(f, &g.Offset[i], n, group)
		f.Check(*n > 0 && (*group == 0 || *n%*group == 0), "work-groups that do not divide the index space")
		f.Check((*group == 0) == (g.Local[0] == 0), "work-group with an extent of 0")
	}
	if f.Reading && g.Local[0] == 0 {
		g.Local = [3]int{}
	}
	events(f, &m.Wait)
}

// events passes the wait list of a command.
func events(f *Fields, list *[]driver.Event) {
	codec.List(f, list, MaxWait, func(e *driver.Event) {
		if f.Reading {
			*e = driver.Event(f.R.Uint())
		} else {
			f.W.Uint(uint64(*e))
		}
	})
}

// Transfer moves one piece between a slot and a memory object. Pieces of one
// transfer have the same event; Last marks the last one.
type Transfer struct {
	Queue, Mem, Event uint64
	Slot              int
	Write, Last       bool
	driver.Place           // Bytes of any form, at most SlotBytes; a box is packed in the slot
	Inline            bool // the bytes of a write follow the frame
	Unawaited         bool // no call waits for the event: the next one that waits reports a failure
	Wait              []driver.Event
}

func (m *Transfer) fields(f *Fields) {
	f.Uint(&m.Queue, &m.Mem, &m.Event)
	codec.Small(f, &m.Slot, Slots-1)
	f.Bool(&m.Write, &m.Last, &m.Inline, &m.Unawaited)
	if f.Reading {
		m.Place = driver.Place{}
	}
	codec.Size(f, &m.Bytes)
	codec.Small(f, &m.Form, int(driver.FormBox))
	f.Check(m.Bytes > 0 && m.Bytes <= SlotBytes && (m.Write || !m.Inline && !m.Unawaited),
		"invalid transfer length")
	switch m.Form {
	case driver.FormPixels:
		region(f, &m.Region)
	case driver.FormBox:
		box(f, &m.Size)
		layout(f, &m.At)
	default:
		codec.Size(f, &m.Off)
	}
	events(f, &m.Wait)
}

func region(f *Fields, r *driver.Region) {
	for i := range 3 {
		codec.Size(f, &r.Origin[i], &r.Size[i])
	}
}

func box(f *Fields, b *driver.Box) { codec.Size(f, &b[0], &b[1], &b[2]) }

func layout(f *Fields, l *driver.Layout) { codec.Size(f, &l.Off, &l.Row, &l.Slice) }

// Direct moves bytes between a memory object and memory that the client shares, in
// one command.
type Direct struct {
	Queue, Mem, Event uint64
	Region            uint64
	At                int64 // in the region
	Off, Bytes        int64 // of the object
	Write             bool
	Wait              []driver.Event
}

func (m *Direct) fields(f *Fields) {
	f.Uint(&m.Queue, &m.Mem, &m.Event, &m.Region)
	codec.Size(f, &m.At, &m.Off, &m.Bytes)
	f.Bool(&m.Write)
	events(f, &m.Wait)
}

// Unshare ends the use of shared memory.
type Unshare struct{ Region uint64 }

func (m *Unshare) fields(f *Fields) { f.Uint(&m.Region) }

// Copy copies within the device.
type Copy struct {
	Queue, Event uint64
	Dst, Src     uint64
	To, From     driver.Place
	Wait         []driver.Event
}

// Kinds of copies.
const (
	copyBytes         = 0
	copyImageToBuffer = 1
	copyBufferToImage = 2
	copyRect          = 3
	copyImage         = 4
)

// copyForms are the forms of both places by the kind of a copy.
var copyForms = [...]struct{ to, from driver.Form }{copyImageToBuffer: {from: driver.FormPixels},
	copyBufferToImage: {to: driver.FormPixels}, copyRect: {driver.FormBox, driver.FormBox},
	copyImage: {driver.FormPixels, driver.FormPixels}}

func (m *Copy) fields(f *Fields) {
	if f.Reading {
		*m = Copy{Wait: m.Wait}
	}
	f.Uint(&m.Queue, &m.Event)
	to, from := &m.To, &m.From
	kind := 0
	for k, forms := range copyForms {
		if forms.to == to.Form && forms.from == from.Form {
			kind = k
		}
	}
	codec.Small(f, &kind, copyImage)
	to.Form, from.Form = copyForms[kind].to, copyForms[kind].from
	f.Uint(&m.Dst, &m.Src)
	switch kind {
	case copyBytes:
		codec.Size(f, &to.Off, &from.Off, &to.Bytes)
		from.Bytes = to.Bytes
	case copyImageToBuffer:
		codec.Size(f, &to.Off)
		region(f, &from.Region)
	case copyBufferToImage:
		codec.Size(f, &from.Off)
		region(f, &to.Region)
	case copyRect:
		box(f, &to.Size)
		from.Size = to.Size
		layout(f, &to.At)
		layout(f, &from.At)
	case copyImage:
		codec.Size(f, &to.Region.Origin[0], &to.Region.Origin[1], &to.Region.Origin[2])
		region(f, &from.Region)
		to.Region.Size = from.Region.Size
	}
	events(f, &m.Wait)
}

// Fill writes a pattern over bytes of a buffer, or a color over a region of an image.
type Fill struct {
	Queue, Mem, Event uint64
	driver.Place
	Pattern []byte // of pixels: a color
	Wait    []driver.Event
}

func (m *Fill) fields(f *Fields) {
	if f.Reading {
		*m = Fill{Wait: m.Wait}
	}
	f.Uint(&m.Queue, &m.Mem, &m.Event)
	image := m.Form == driver.FormPixels
	f.Bool(&image)
	if image {
		m.Form = driver.FormPixels
		region(f, &m.Region)
	} else {
		codec.Size(f, &m.Off, &m.Bytes)
	}
	f.Bytes(&m.Pattern)
	n := len(m.Pattern)
	f.Check(n > 0 && n <= driver.MaxPattern && n&(n-1) == 0 && (!image || n == len(driver.Color{})),
		"invalid pattern")
	events(f, &m.Wait)
}

// Marker is a command that does nothing but complete. The commands of its queue behind
// one with Barrier come after it.
type Marker struct {
	Queue, Event uint64
	Barrier      bool
	Wait         []driver.Event
}

func (m *Marker) fields(f *Fields) {
	f.Uint(&m.Queue, &m.Event)
	f.Bool(&m.Barrier)
	events(f, &m.Wait)
}

// Flush hands the commands of a queue to the device.
type Flush struct{ Queue uint64 }

func (m *Flush) fields(f *Fields) { f.Uint(&m.Queue) }

// Finish has its reply when all commands of the queue are complete: the error of
// the first that failed since the last Finish.
type Finish struct{ Req, Queue uint64 }

func (m *Finish) fields(f *Fields) { f.Uint(&m.Req, &m.Queue) }

// Forget releases an event of the client.
type Forget struct{ Event uint64 }

func (m *Forget) fields(f *Fields) { f.Uint(&m.Event) }

// Questions of Ask.
const (
	AskFree      = 1 // reply: bytes
	AskWorkGroup = 2 // Object: kernel; reply: largest size, multiple
	AskFormats   = 4 // Object: access, Index: shape; reply: count, pairs
	AskGlobals   = 5 // Object: program; reply: count, pairs of name and bytes
	AskGlobal    = 8 // Object: program, Name: a variable; reply as to AskGlobals, without it if there is none
)

// Ask asks about the device or a kernel.
type Ask struct {
	Req    uint64
	What   int
	Object uint64
	Index  int
	Name   string // of AskGlobal
}

func (m *Ask) fields(f *Fields) {
	f.Uint(&m.Req)
	codec.Small(f, &m.What, AskGlobal)
	f.Uint(&m.Object)
	codec.Small(f, &m.Index, MaxArgs)
	if m.What == AskGlobal {
		f.Str(&m.Name)
	}
}

// Globals passes a reply to AskGlobals or AskGlobal.
func Globals(f *Fields, list *[]driver.Global) {
	codec.List(f, list, math.MaxInt, func(g *driver.Global) {
		f.Str(&g.Name)
		codec.Size(f, &g.Bytes)
	})
}

// Formats passes a reply to AskFormats.
func Formats(f *Fields, list *[][2]uint32) {
	codec.List(f, list, math.MaxInt, func(pair *[2]uint32) {
		codec.Small(f, &pair[0], math.MaxUint32)
		codec.Small(f, &pair[1], math.MaxUint32)
	})
}

// Order is an admin's question or order as JSON; the reply's body is JSON too.
type Order struct {
	Req  uint64
	JSON []byte
}

func (m *Order) fields(f *Fields) {
	f.Uint(&m.Req)
	f.Bytes(&m.JSON)
}

// Query asks about the device, a kernel or a program. The reply's body is the answer as
// OpenCL lays it out.
type Query struct {
	Req    uint64
	Of     driver.QueryOf
	Object uint64 // 0: the device
	Index  uint64
	Param  uint64
}

func (m *Query) fields(f *Fields) {
	of := uint64(m.Of)
	f.Uint(&m.Req, &of, &m.Object, &m.Index, &m.Param)
	f.Check(of <= uint64(driver.QueryProgram), "unknown kind of question")
	f.Check(m.Index < MaxArgs && m.Param <= 1<<32-1, "a question out of range")
	m.Of = driver.QueryOf(of)
}
