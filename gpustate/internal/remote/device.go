package remote

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// Device is one device of a server.
type Device struct {
	info  driver.Info
	addr  string
	addrs []string // where other servers reach this one
	conn  net.Conn
	in    *bufio.Reader // of the receiver alone
	out   *wire.Sender
	arena []byte // of the slots; nil: data goes through the connection

	memory memory // that is shared beside the slots

	// A core copies slower than a device does: where there are many, some pieces
	// are copied at the same time.
	copiers int
	emptied chan *wire.Done // reads in the arena, for the copiers

	ids   atomic.Uint64
	slots chan int // those that are free

	mu       sync.Mutex
	requests map[uint64]chan *wire.Reply
	events   map[driver.Event]*pending
	into     [wire.Slots]slot
	moving   Mover
	closed   bool
	why      error // what the server said before it hung up

	dead    chan struct{} // closed when the connection is over
	deadErr error         // why; set before
	stop    chan struct{} // closed by Close
}

// pending is an event whose command is not known to be complete, or that failed.
type pending struct {
	left  int // pieces
	err   error
	times *driver.Times
	done  chan struct{} // nil until somebody waits
}

// slot is what a slot is used for.
type slot struct {
	busy bool
	dst  []byte // where a read goes
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
		id   uint64
		args int
	}
	queue struct {
		id   uint64
		lazy bool
	}
)

func newDevice(c net.Conn, br *bufio.Reader, addr string, w wire.Welcome, n int) *Device {
	d := &Device{info: w.Devices[n], addr: addr, addrs: w.Addrs, conn: c, in: br,
		out: wire.NewSender(c, 0), slots: make(chan int, wire.Slots),
		requests: map[uint64]chan *wire.Reply{}, events: map[driver.Event]*pending{},
		dead: make(chan struct{}), stop: make(chan struct{}),
		copiers: min(max(runtime.GOMAXPROCS(0)/4, 1), 4)}
	// memory of the device is not this host's, and what a queue did is told for
	// many commands at once
	d.info.HostMemory, d.info.Lazy = false, true
	if w.Quota > 0 && w.Quota < d.info.GlobalBytes {
		d.info.GlobalBytes = w.Quota
		d.info.MaxAllocBytes = min(d.info.MaxAllocBytes, w.Quota)
	}
	for i := range wire.Slots {
		d.slots <- i
	}
	return d
}

// Info describes the device; Server is set.
func (d *Device) Info() driver.Info { return d.info }

// Addr is the address that the device was opened at.
func (d *Device) Addr() string { return d.addr }

func (d *Device) id() uint64 { return d.ids.Add(1) }

// lost is the error of calls after the connection ended.
func (d *Device) lost() error {
	<-d.dead
	return d.deadErr
}

// failing turns an error of the connection into the device's own.
func (d *Device) failing(err error) error {
	if err == nil {
		return nil
	}
	return d.lost()
}

// request sends a message and waits for the reply.
func (d *Device) request(req uint64, m wire.Message) (*wire.Reply, error) {
	c := make(chan *wire.Reply, 1)
	d.mu.Lock()
	d.requests[req] = c
	d.mu.Unlock()
	if err := d.out.Now(m); err != nil {
		return nil, d.failing(err)
	}
	select {
	case r := <-c:
		return r, r.Err
	case <-d.dead:
	}
	select { // the reply may have been the last word
	case r := <-c:
		return r, r.Err
	default:
		return nil, d.deadErr
	}
}

// send is for messages without an answer.
func (d *Device) send(m wire.Message) error {
	return d.failing(d.out.Later(func(w *wire.Writer) { w.Put(m) }))
}

// release tells the server to release an object. A lost server has released all.
func (d *Device) release(id uint64) error {
	_ = d.send(&wire.Release{ID: id})
	return nil
}

// Close ends the connection; the server releases what is left.
func (d *Device) Close() error {
	d.mu.Lock()
	was := d.closed
	d.closed = true
	d.mu.Unlock()
	if was {
		return nil
	}
	_ = d.out.Flush() // a server that is gone needs no goodbye
	close(d.stop)
	err := d.conn.Close()
	<-d.dead
	if errors.Is(err, net.ErrClosed) {
		err = nil // the connection broke before
	}
	return errors.Join(err, d.memory.close(), wire.FreeShared(d.arena))
}

// FreeBytes asks the server.
func (d *Device) FreeBytes() (int64, bool) {
	r, err := d.ask(wire.AskFree, 0, 0)
	if err != nil {
		return 0, false
	}
	n := r.Size()
	return n, r.End() == nil
}

func (d *Device) ask(what int, object uint64, index int) (*wire.Reader, error) {
	id := d.id()
	reply, err := d.request(id, &wire.Ask{Req: id, What: what, Object: object, Index: index})
	if err != nil {
		return nil, err
	}
	return &wire.Reader{B: reply.Body}, nil
}

// WorkGroup asks the server.
func (d *Device) WorkGroup(k driver.Handle) (size, multiple int, err error) {
	r, err := d.ask(wire.AskWorkGroup, k.(*kernel).id, 0)
	if err != nil {
		return 0, 0, err
	}
	size, multiple = int(r.Size()), int(r.Size())
	return size, multiple, r.End()
}

// ArgName asks the server.
func (d *Device) ArgName(k driver.Handle, i int) (string, error) {
	if i < 0 || i >= wire.MaxArgs {
		return "", fmt.Errorf("argument %d: %w", i, driver.ErrUnsupported)
	}
	r, err := d.ask(wire.AskArgName, k.(*kernel).id, i)
	if err != nil {
		return "", err
	}
	s := r.Str()
	return s, r.End()
}

// ImageFormats asks the server.
func (d *Device) ImageFormats(a driver.Access, dims int) ([][2]uint32, error) {
	r, err := d.ask(wire.AskFormats, uint64(a), dims)
	if err != nil {
		return nil, err
	}
	var list [][2]uint32
	for range r.Count() {
		list = append(list, [2]uint32{uint32(r.Uint()), uint32(r.Uint())})
	}
	return list, r.End()
}
