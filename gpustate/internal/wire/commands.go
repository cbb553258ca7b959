package wire

import "github.com/holdfast-hpc/holdfast/gpustate/internal/driver"

// Arg is a kernel argument with the object's number.
type Arg struct {
	Kind   driver.ArgKind
	Object uint64
	Local  int64
	Value  []byte
}

// SetArg sets an argument. It has no reply: what is wrong with it fails the next
// launch of the kernel.
type SetArg struct {
	Kernel uint64
	Index  int
	Arg    Arg
}

// Op is OpSetArg.
func (*SetArg) Op() Op { return OpSetArg }

// Encode appends the fields.
func (m *SetArg) Encode(w *Writer) {
	w.Uint(m.Kernel)
	w.Uint(uint64(m.Index))
	w.Uint(uint64(m.Arg.Kind))
	switch m.Arg.Kind {
	case driver.ArgMem, driver.ArgSampler:
		w.Uint(m.Arg.Object)
	case driver.ArgLocal:
		w.Int(m.Arg.Local)
	default:
		w.Bytes(m.Arg.Value)
	}
}

// Decode takes the fields off.
func (m *SetArg) Decode(r *Reader) {
	*m = SetArg{Kernel: r.Uint(), Index: r.Small(MaxArgs - 1)}
	switch m.Arg.Kind = driver.ArgKind(r.Small(255)); m.Arg.Kind {
	case driver.ArgMem, driver.ArgSampler:
		m.Arg.Object = r.Uint()
	case driver.ArgLocal:
		m.Arg.Local = r.Size()
	case driver.ArgValue:
		m.Arg.Value = r.Bytes()
	default:
		r.Fail("argument of an unknown kind")
	}
}

// Launch runs a kernel. Event is 0 on a lazy queue.
type Launch struct {
	Queue, Kernel, Event uint64
	Grid                 driver.Grid
	Wait                 []driver.Event
}

// Op is OpLaunch.
func (*Launch) Op() Op { return OpLaunch }

// Encode appends the fields.
func (m *Launch) Encode(w *Writer) {
	w.Uint(m.Queue)
	w.Uint(m.Kernel)
	w.Uint(m.Event)
	w.Uint(uint64(m.Grid.Dims))
	for i := range min(m.Grid.Dims, 3) {
		w.Int(int64(m.Grid.Offset[i]))
		w.Int(int64(m.Grid.Global[i]))
		w.Int(int64(m.Grid.Local[i]))
	}
	encodeWait(w, m.Wait)
}

// Decode takes the fields off. Wait keeps its memory.
func (m *Launch) Decode(r *Reader) {
	m.Queue, m.Kernel, m.Event = r.Uint(), r.Uint(), r.Uint()
	m.Grid = driver.Grid{Dims: r.Small(3)}
	g := &m.Grid
	if g.Dims == 0 {
		r.Fail("launch without dimensions")
	}
	g.Global, g.Local = [3]int{1, 1, 1}, [3]int{1, 1, 1}
	for i := range g.Dims {
		g.Offset[i], g.Global[i], g.Local[i] = int(r.Size()), int(r.Size()), int(r.Size())
		if n := g.Global[i]; n == 0 || g.Local[i] != 0 && n%g.Local[i] != 0 {
			r.Fail("work-groups that do not divide the index space")
		}
		if (g.Local[i] == 0) != (g.Local[0] == 0) {
			r.Fail("work-group with an extent of 0")
		}
	}
	if g.Local[0] == 0 {
		g.Local = [3]int{}
	}
	m.Wait = decodeWait(r, m.Wait[:0])
}

func encodeWait(w *Writer, list []driver.Event) {
	w.Uint(uint64(len(list)))
	for _, e := range list {
		w.Uint(uint64(e))
	}
}

func decodeWait(r *Reader, list []driver.Event) []driver.Event {
	for range r.Small(MaxWait) {
		list = append(list, driver.Event(r.Uint()))
	}
	return list
}

// Transfer moves one piece between a slot and a memory object. Pieces of one
// transfer have the same event; Last marks the last one.
type Transfer struct {
	Queue, Mem, Event uint64
	Slot              int
	Write, Last       bool
	Image             bool
	Off, Bytes        int64         // Bytes at most SlotBytes
	Region            driver.Region // with Image, instead of Off
	Inline            bool          // the bytes of a write follow the frame
	Unawaited         bool          // nobody waits for the event: a failure is told to who waits next
	Wait              []driver.Event
}

// Op is OpTransfer.
func (*Transfer) Op() Op { return OpTransfer }

// Encode appends the fields.
func (m *Transfer) Encode(w *Writer) {
	w.Uint(m.Queue)
	w.Uint(m.Mem)
	w.Uint(m.Event)
	w.Uint(uint64(m.Slot))
	w.Bool(m.Write)
	w.Bool(m.Last)
	w.Bool(m.Inline)
	w.Bool(m.Unawaited)
	w.Int(m.Bytes)
	w.Bool(m.Image)
	if m.Image {
		for i := range 3 {
			w.Int(int64(m.Region.Origin[i]))
			w.Int(int64(m.Region.Size[i]))
		}
	} else {
		w.Int(m.Off)
	}
	encodeWait(w, m.Wait)
}

// Decode takes the fields off. Wait keeps its memory.
func (m *Transfer) Decode(r *Reader) {
	m.Queue, m.Mem, m.Event, m.Slot = r.Uint(), r.Uint(), r.Uint(), r.Small(Slots-1)
	m.Write, m.Last, m.Inline, m.Unawaited = r.Bool(), r.Bool(), r.Bool(), r.Bool()
	m.Bytes, m.Image = r.Size(), r.Bool()
	if m.Bytes == 0 || m.Bytes > SlotBytes || (m.Inline || m.Unawaited) && !m.Write {
		r.Fail("transfer of an impossible length")
	}
	m.Off, m.Region = 0, driver.Region{}
	if m.Image {
		for i := range 3 {
			m.Region.Origin[i], m.Region.Size[i] = int(r.Size()), int(r.Size())
		}
	} else {
		m.Off = r.Size()
	}
	m.Wait = decodeWait(r, m.Wait[:0])
}

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

// Op is OpDirect.
func (*Direct) Op() Op { return OpDirect }

// Encode appends the fields.
func (m *Direct) Encode(w *Writer) {
	for _, v := range []uint64{m.Queue, m.Mem, m.Event, m.Region} {
		w.Uint(v)
	}
	w.Int(m.At)
	w.Int(m.Off)
	w.Int(m.Bytes)
	w.Bool(m.Write)
	encodeWait(w, m.Wait)
}

// Decode takes the fields off. Wait keeps its memory.
func (m *Direct) Decode(r *Reader) {
	m.Queue, m.Mem, m.Event, m.Region = r.Uint(), r.Uint(), r.Uint(), r.Uint()
	m.At, m.Off, m.Bytes, m.Write = r.Size(), r.Size(), r.Size(), r.Bool()
	m.Wait = decodeWait(r, m.Wait[:0])
}

// Unshare ends the use of shared memory.
type Unshare struct{ Region uint64 }

// Op is opUnshare.
func (*Unshare) Op() Op { return opUnshare }

// Encode appends the fields.
func (m *Unshare) Encode(w *Writer) { w.Uint(m.Region) }

// Decode takes the fields off.
func (m *Unshare) Decode(r *Reader) { m.Region = r.Uint() }

// Copies of whole images to and from buffers are of other kinds than those of
// bytes.
const (
	CopyBytes         = 0
	CopyImageToBuffer = 1
	CopyBufferToImage = 2
)

// Copy copies within the device.
type Copy struct {
	Queue, Event          uint64
	Kind                  int
	Dst, Src              uint64
	DstOff, SrcOff, Bytes int64
	Wait                  []driver.Event
}

// Op is OpCopy.
func (*Copy) Op() Op { return OpCopy }

// Encode appends the fields.
func (m *Copy) Encode(w *Writer) {
	w.Uint(m.Queue)
	w.Uint(m.Event)
	w.Uint(uint64(m.Kind))
	w.Uint(m.Dst)
	w.Uint(m.Src)
	w.Int(m.DstOff)
	w.Int(m.SrcOff)
	w.Int(m.Bytes)
	encodeWait(w, m.Wait)
}

// Decode takes the fields off. Wait keeps its memory.
func (m *Copy) Decode(r *Reader) {
	m.Queue, m.Event, m.Kind, m.Dst, m.Src = r.Uint(), r.Uint(), r.Small(CopyBufferToImage), r.Uint(), r.Uint()
	m.DstOff, m.SrcOff, m.Bytes = r.Size(), r.Size(), r.Size()
	m.Wait = decodeWait(r, m.Wait[:0])
}

// Marker is a command that does nothing but complete.
type Marker struct {
	Queue, Event uint64
	Wait         []driver.Event
}

// Op is OpMarker.
func (*Marker) Op() Op { return OpMarker }

// Encode appends the fields.
func (m *Marker) Encode(w *Writer) {
	w.Uint(m.Queue)
	w.Uint(m.Event)
	encodeWait(w, m.Wait)
}

// Decode takes the fields off. Wait keeps its memory.
func (m *Marker) Decode(r *Reader) {
	m.Queue, m.Event = r.Uint(), r.Uint()
	m.Wait = decodeWait(r, m.Wait[:0])
}

// Flush hands the commands of a queue to the device.
type Flush struct{ Queue uint64 }

// Op is opFlush.
func (*Flush) Op() Op { return opFlush }

// Encode appends the fields.
func (m *Flush) Encode(w *Writer) { w.Uint(m.Queue) }

// Decode takes the fields off.
func (m *Flush) Decode(r *Reader) { m.Queue = r.Uint() }

// Finish has its reply when all commands of the queue are complete: the error of
// the first that failed since the last Finish.
type Finish struct{ Req, Queue uint64 }

// Op is opFinish.
func (*Finish) Op() Op { return opFinish }

// Encode appends the fields.
func (m *Finish) Encode(w *Writer) {
	w.Uint(m.Req)
	w.Uint(m.Queue)
}

// Decode takes the fields off.
func (m *Finish) Decode(r *Reader) { *m = Finish{r.Uint(), r.Uint()} }

// Forget says that nobody will ask for an event any more.
type Forget struct{ Event uint64 }

// Op is opForget.
func (*Forget) Op() Op { return opForget }

// Encode appends the fields.
func (m *Forget) Encode(w *Writer) { w.Uint(m.Event) }

// Decode takes the fields off.
func (m *Forget) Decode(r *Reader) { m.Event = r.Uint() }

// Questions of Ask.
const (
	AskFree      = 1 // reply: bytes
	AskWorkGroup = 2 // Object: kernel; reply: size, multiple
	AskArgName   = 3 // Object: kernel, Index; reply: text
	AskFormats   = 4 // Object: access, Index: dimensions; reply: count, pairs
	AskGlobals   = 5 // Object: program; reply: count, pairs of name and bytes
)

// Ask asks about the device or a kernel.
type Ask struct {
	Req    uint64
	What   int
	Object uint64
	Index  int
}

// Op is opAsk.
func (*Ask) Op() Op { return opAsk }

// Encode appends the fields.
func (m *Ask) Encode(w *Writer) {
	w.Uint(m.Req)
	w.Uint(uint64(m.What))
	w.Uint(m.Object)
	w.Uint(uint64(m.Index))
}

// Decode takes the fields off.
func (m *Ask) Decode(r *Reader) {
	*m = Ask{r.Uint(), r.Small(AskGlobals), r.Uint(), r.Small(MaxArgs)}
}

// Export lets another server fetch a range of a buffer once. The reply is a
// ticket.
type Export struct {
	Req, Mem   uint64
	Off, Bytes int64
}

// Op is opExport.
func (*Export) Op() Op { return opExport }

// Encode appends the fields.
func (m *Export) Encode(w *Writer) {
	w.Uint(m.Req)
	w.Uint(m.Mem)
	w.Int(m.Off)
	w.Int(m.Bytes)
}

// Decode takes the fields off.
func (m *Export) Decode(r *Reader) { *m = Export{r.Uint(), r.Uint(), r.Size(), r.Size()} }

// Pull makes the server fetch the bytes behind a ticket from another one. The
// reply is 1 when they are there, 0 when no address can be reached.
type Pull struct {
	Req, Mem   uint64
	Off, Bytes int64
	Addrs      []string
	Ticket     []byte
}

// Op is opPull.
func (*Pull) Op() Op { return opPull }

// Encode appends the fields.
func (m *Pull) Encode(w *Writer) {
	w.Uint(m.Req)
	w.Uint(m.Mem)
	w.Int(m.Off)
	w.Int(m.Bytes)
	encodeAddrs(w, m.Addrs)
	w.Bytes(m.Ticket)
}

// Decode takes the fields off. What it gives does not share memory with the
// frame.
func (m *Pull) Decode(r *Reader) {
	*m = Pull{r.Uint(), r.Uint(), r.Size(), r.Size(), decodeAddrs(r), []byte(r.Str())}
}

// Fetch is the one frame of a server that fetches: the bytes follow the reply.
type Fetch struct {
	Ticket []byte
	Bytes  int64
}

// Op is OpFetch.
func (*Fetch) Op() Op { return OpFetch }

// Encode appends the fields.
func (m *Fetch) Encode(w *Writer) {
	w.Bytes(m.Ticket)
	w.Int(m.Bytes)
}

// Decode takes the fields off.
func (m *Fetch) Decode(r *Reader) { *m = Fetch{[]byte(r.Str()), r.Size()} }

// Order is an admin's question or order as JSON; the reply's body is JSON too.
type Order struct {
	Req  uint64
	JSON []byte
}

// Op is OpOrder.
func (*Order) Op() Op { return OpOrder }

// Encode appends the fields.
func (m *Order) Encode(w *Writer) {
	w.Uint(m.Req)
	w.Bytes(m.JSON)
}

// Decode takes the fields off.
func (m *Order) Decode(r *Reader) { *m = Order{r.Uint(), []byte(r.Str())} }
