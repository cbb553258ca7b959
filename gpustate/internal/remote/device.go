package remote

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/codec"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// Device is one device of a server.
type Device struct {
	info driver.Info
	addr string
	link

	taking sync.Mutex // held while messages are taken out of the ring
	frames wire.Frames
	over   bool      // there are no more messages
	done   wire.Done // of the goroutine that takes messages in

	silence time.Duration // that the server may keep

	memory memory // that is shared in addition to the slots

	// A core copies slower than a device does: if there are many, some pieces
	// are copied at the same time.
	copiers int
	emptied chan *report // of reads, whose bytes the copiers take out of the arena

	ids          atomic.Uint64
	unawaitedNow atomic.Int32  // len(unawaited)
	slots        chan struct{} // one for each that is free

	mu        sync.Mutex
	free      []int // slots; the one used last is taken next: it is in the caches
	requests  map[uint64]*call
	passed    map[uint64]string // why programs were built from source, by number
	events    map[driver.Event]*pending
	unawaited []unawaited
	reads     []*pending // that are not complete, oldest first
	reports   []*report  // that are not taken in, oldest first
	into      [wire.Slots]slot
	moving    driver.Mover
	closed    bool
	why       error // the server's last message before it hung up

	dead    chan struct{} // closed when the connection is over
	deadErr error         // why; set before
	stop    chan struct{} // closed by Close
}

// link is the way to the server and back.
type link struct {
	conn  net.Conn
	in    *bufio.Reader        // of the receiver alone; not used with a ring
	input *wire.ActivityReader // gets the messages
	out   *wire.Sender
	ring  *wire.Ring // conn where it is one
	arena []byte     // that is shared; nil: data goes through the connection
}

// completion is reached when the server reports it.
type completion struct {
	finished atomic.Bool
	done     chan struct{} // nil until a goroutine sleeps; the device's mu guards it
}

// finish wakes the waiters; the device's mu is held.
func (p *completion) finish() {
	p.finished.Store(true)
	if p.done != nil {
		close(p.done)
	}
}

// call is a request; reply is set when it is finished.
type call struct {
	completion
	reply *wire.Reply
}

// pending is an event whose command is not known to be complete, or that failed.
type pending struct {
	completion
	left      int // pieces
	unawaited bool
	err       error
	times     *driver.Times
	fills     *filling // of a read that is not complete
}

// slot is the use of a slot.
type slot struct {
	busy bool
	into piece // destination of a read; without bytes for a write
}

// Handles. A host buffer has none: it is memory of this process alone.
type (
	object uint64
	mem    struct {
		id     uint64
		region uint64 // of a host buffer that the server has mapped
		bytes  int64
		mapped []byte // MapShared
		pixel  int    // of an image
	}
	kernel struct {
		id    uint64
		args  int
		set   wire.SetArg // the last one
		exact bool
	}
	queue struct {
		id      uint64
		lazy    bool
		ordered bool
		launch  wire.Launch // the last one
	}
)

func newDevice(c net.Conn, br *bufio.Reader, addr string, w wire.Welcome, n int) *Device {
	d := &Device{info: w.Devices[n], addr: addr,
		link: link{conn: c, in: br, out: wire.NewSender(c, 0)}, slots: make(chan struct{}, wire.Slots),
		requests: map[uint64]*call{}, passed: map[uint64]string{}, events: map[driver.Event]*pending{},
		dead: make(chan struct{}), stop: make(chan struct{}),
		copiers: min(max(runtime.GOMAXPROCS(0)/4, 1), 4)}
	// memory of the device is not this host's, and completion is reported for
	// many commands at once
	d.info.HostMemory, d.info.Lazy = false, true
	if w.Quota > 0 && w.Quota < d.info.GlobalBytes {
		d.info.GlobalBytes = w.Quota
		d.info.MaxAllocBytes = min(d.info.MaxAllocBytes, w.Quota)
	}
	for i := range wire.Slots {
		d.slots <- struct{}{}
		d.free = append(d.free, i)
	}
	return d
}

// Info describes the device; Server is set.
func (d *Device) Info() driver.Info { return d.info }

func (d *Device) id() uint64 { return d.ids.Add(1) }

// Lost is closed when the connection is over.
func (d *Device) Lost() <-chan struct{} { return d.dead }

// failing turns an error of the connection into the device's own.
func (d *Device) failing(err error) error {
	if err == nil {
		return nil
	}
	<-d.dead
	return d.deadErr
}

// request sends a message and waits for the reply, which answer, if it is not nil, takes in.
func (d *Device) request(req uint64, m wire.Message, answer func(*wire.Fields)) error {
	c := &call{}
	d.mu.Lock()
	d.requests[req] = c
	d.mu.Unlock()
	if err := d.out.Now(m); err != nil {
		return d.failing(err)
	}
	if err := d.await(&c.completion); err != nil {
		return err
	}
	if c.reply.Err != nil || answer == nil {
		return c.reply.Err
	}
	return codec.Decode(c.reply.Body, answer)
}

// send is for messages without an answer.
func (d *Device) send(m wire.Message) error {
	return d.failing(d.out.Post(m))
}

// release tells the server to release an object. A lost server has released all.
func (d *Device) release(id uint64) error {
	_ = d.send(&wire.Release{ID: id})
	return nil
}

// goodbye is how long a server that reads nothing may keep a client from going.
const goodbye = 5 * time.Second

// Close ends the connection; the server releases the rest.
func (d *Device) Close() error {
	d.mu.Lock()
	was := d.closed
	d.closed = true
	d.mu.Unlock()
	if was {
		return nil
	}
	_ = d.conn.SetWriteDeadline(time.Now().Add(goodbye))
	_ = d.out.Finish() // a server that is gone needs no goodbye
	close(d.stop)
	err := d.conn.Close()
	<-d.dead
	if errors.Is(err, net.ErrClosed) {
		err = nil // the connection broke before
	}
	if d.ring != nil {
		d.ring.Release()
	}
	return errors.Join(err, d.memory.close(), shm.Free(d.arena))
}

// FreeBytes asks the server.
func (d *Device) FreeBytes() (free int64, ok bool) {
	err := d.ask(wire.AskFree, 0, 0, func(f *wire.Fields) { codec.Size(f, &free) })
	return free, err == nil
}

// ask asks for the fields of the reply.
func (d *Device) ask(what int, object uint64, index int, answer func(*wire.Fields)) error {
	id := d.id()
	return d.request(id, &wire.Ask{Req: id, What: what, Object: object, Index: index}, answer)
}

// WorkGroup asks the server.
func (d *Device) WorkGroup(k driver.Handle) (size, multiple int, err error) {
	err = d.ask(wire.AskWorkGroup, k.(*kernel).id, 0, func(f *wire.Fields) { codec.Size(f, &size, &multiple) })
	return size, multiple, err
}

// Globals asks the server.
func (d *Device) Globals(program driver.Handle) (list []driver.Global, err error) {
	err = d.ask(wire.AskGlobals, uint64(program.(object)), 0, func(f *wire.Fields) { wire.Globals(f, &list) })
	return list, err
}

// Global asks the server; one that is lost finds none.
func (d *Device) Global(program driver.Handle, name string) (driver.Global, bool) {
	var list []driver.Global
	id := d.id()
	m := &wire.Ask{Req: id, What: wire.AskGlobal, Object: uint64(program.(object)), Name: name}
	err := d.request(id, m, func(f *wire.Fields) { wire.Globals(f, &list) })
	if err != nil || len(list) != 1 || list[0].Bytes <= 0 {
		return driver.Global{}, false
	}
	return driver.Global{Name: name, Bytes: list[0].Bytes}, true
}

// ImageFormats asks the server.
func (d *Device) ImageFormats(a driver.Access, shape int) (list [][2]uint32, err error) {
	err = d.ask(wire.AskFormats, uint64(a), shape, func(f *wire.Fields) { wire.Formats(f, &list) })
	return list, err
}

// Query asks the server.
func (d *Device) Query(q driver.Query) (answer []byte, err error) {
	m := &wire.Query{Req: d.id(), Of: q.Of, Index: uint64(q.Index), Param: uint64(q.Param)}
	switch o := q.Object.(type) {
	case *kernel:
		m.Object = o.id
	case object:
		m.Object = uint64(o)
	}
	err = d.request(m.Req, m, func(f *wire.Fields) { f.Bytes(&answer) })
	return answer, err
}

// expect reads one message of the kind of m.
func expect(br *bufio.Reader, m wire.Message) error {
	op, body, _, err := wire.ReadFrame(br, nil)
	if err != nil {
		return err
	}
	if op == wire.OpBye {
		var bye wire.Bye
		return errors.Join(wire.Decode(body, &bye), errors.New(bye.Why))
	}
	if want := wire.OpOf(m); op != want {
		return fmt.Errorf("%w: got operation %d, want %d", wire.ErrProtocol, op, want)
	}
	return wire.Decode(body, m)
}
