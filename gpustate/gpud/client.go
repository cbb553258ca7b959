package gpud

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// client is one opened device. Its goroutine reads and carries out commands in
// order; each queue has a goroutine that waits for them.
type client struct {
	s    *Server
	id   uint64
	who  wire.Open
	conn net.Conn
	in   *bufio.Reader
	out  *wire.Sender
	dev  *device
	drv  driver.Device

	arena  []byte // shared with the client, or nil
	stage  []byte // the slots: the arena, or memory of the driver
	pinned driver.Pinned
	host   driver.Handle // the arena as the driver pinned it, or nil
	begun  time.Time
	moved  atomic.Bool // its program has moved away and lets this one go

	used       atomic.Int64
	unfinished atomic.Int64
	commands   atomic.Int64

	token [32]byte // by which memory finds the client

	mu      sync.Mutex
	regions map[uint64]*region // nil when the client is gone
	objects map[uint64]any
	events  map[driver.Event]*event
	failed  int            // events that are kept because they failed
	builds  sync.WaitGroup // what goes on beside the reading goroutine

	// of the reading goroutine: messages that are decoded again and again
	launch   wire.Launch
	direct   wire.Direct
	transfer wire.Transfer
	copying  wire.Copy
	marker   wire.Marker
}

// Objects.
type (
	mem struct {
		h     driver.Handle
		kind  driver.MemKind
		bytes int64
		image driver.ImageDesc
		pixel int64
	}
	sampler struct{ h driver.Handle }
	program struct{ h driver.Handle }
	kernel  struct {
		h    driver.Handle
		name string
		bad  map[int]error // arguments that the API refused
	}
)

// serveClient serves a client from Welcome to the end.
func (s *Server) serveClient(conn net.Conn) {
	c := &client{s: s, conn: conn, in: bufio.NewReaderSize(conn, 64<<10), out: wire.NewSender(conn, s.opt.Patience),
		regions: map[uint64]*region{}, objects: map[uint64]any{}, events: map[driver.Event]*event{}, begun: time.Now()}
	if err := c.open(); err != nil {
		s.opt.Logger.Warn("client not served", "from", conn.RemoteAddr().String(), "err", err)
		return
	}
	s.enter(c)
	_ = c.reply(c.who.Req, nil, func(w *wire.Writer) { w.B = c.token[:] }) // if it is gone serve finds out
	s.opt.Logger.Info("client", "id", c.id, "program", c.who.Program, "host", c.who.Host, "pid", c.who.PID,
		"label", c.who.Label, "device", c.dev.info.String())
	err := c.serve()
	if !hungUp(err) {
		c.dismiss(err.Error())
		s.opt.Logger.Warn("client dropped", "id", c.id, "err", err)
	}
	_ = c.conn.Close()
	if err := c.free(); err != nil {
		s.opt.Logger.Warn("client not wholly freed", "id", c.id, "err", err)
	}
	s.leave(c)
	s.opt.Logger.Info("client gone", "id", c.id, "commands", c.commands.Load())
}

// hungUp is an end that the client chose.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// openTime bounds the time until a client has chosen its device.
const openTime = 60 * time.Second

// open offers the devices and opens the one that is chosen.
func (c *client) open() error {
	if err := c.conn.SetReadDeadline(time.Now().Add(openTime)); err != nil {
		return err
	}
	w := &wire.Welcome{Server: c.s.opt.Name, Addrs: c.s.advertised(), Devices: c.s.Devices(), Quota: c.s.opt.Quota}
	if err := c.out.Now(w); err != nil {
		return err
	}
	if u, ok := c.conn.(*net.UnixConn); ok {
		// the memory of the slots comes before any frame
		var err error
		var number uint64
		if number, c.arena, err = wire.Accept(u); err != nil {
			return err
		}
		if number != 1 || len(c.arena) != wire.ArenaBytes {
			return errors.Join(fmt.Errorf("%w: slots of another size", wire.ErrProtocol), c.unstage())
		}
	}
	err := c.choose()
	if err != nil {
		return errors.Join(err, c.unstage())
	}
	return c.conn.SetReadDeadline(time.Time{})
}

func (c *client) choose() error {
	op, body, _, err := wire.ReadFrame(c.in, nil)
	if err != nil {
		return err
	}
	r := &wire.Reader{B: body}
	c.who.Decode(r)
	if err := r.End(); op != wire.OpOpen || err != nil {
		return errors.Join(err, fmt.Errorf("%w: no choice of a device", wire.ErrProtocol))
	}
	if _, err = rand.Read(c.token[:]); err != nil {
		return err
	}
	if c.who.Index >= len(c.s.devices) {
		err = fmt.Errorf("device %d of %d: %w", c.who.Index, len(c.s.devices), wire.ErrProtocol)
	} else {
		c.dev = c.s.devices[c.who.Index]
		c.drv, err = c.dev.lib.Open(c.dev.at)
	}
	if err == nil {
		if err = c.stageSlots(); err != nil {
			err = errors.Join(err, c.drv.Close())
		}
	}
	if err != nil {
		err = errors.Join(err, c.reply(c.who.Req, err, nil))
	}
	return err
}

// stageSlots makes the memory that pieces of transfers pass through.
func (c *client) stageSlots() (err error) {
	if c.arena != nil {
		c.stage = c.arena
		if !c.dev.info.HostMemory && c.dev.info.Kind == "cuda" {
			// unpinned memory works too, at a lower rate
			c.host, _ = c.drv.CreateMem(driver.MemDesc{Kind: driver.MemHost, Bytes: wire.ArenaBytes, Host: c.arena})
		}
		return nil
	}
	if c.dev.info.HostMemory {
		c.stage = make([]byte, wire.ArenaBytes)
		return nil
	}
	if c.pinned, err = c.drv.AllocPinned(wire.ArenaBytes); err == nil {
		c.stage = c.pinned.Bytes()
	}
	return err
}

func (c *client) unstage() error {
	var errs []error
	if c.host != nil {
		errs = append(errs, c.drv.ReleaseMem(c.host))
	}
	if c.pinned != nil {
		errs = append(errs, c.pinned.Free())
	}
	errs = append(errs, wire.FreeShared(c.arena))
	c.host, c.pinned, c.stage, c.arena = nil, nil, nil, nil
	return errors.Join(errs...)
}

// dismiss tells the client why it is dropped, if it still listens, and drops it.
func (c *client) dismiss(why string) {
	_ = c.out.Now(&wire.Bye{Why: why})
	if u, ok := c.conn.(interface{ CloseRead() error }); ok {
		_ = u.CloseRead() // ends the reading goroutine, which closes the rest
	}
}

// free waits for the client's commands and releases all it had.
func (c *client) free() error {
	c.s.tickets.drop(c)
	c.builds.Wait()
	c.mu.Lock()
	all := c.objects
	c.objects = map[uint64]any{}
	c.mu.Unlock()
	var errs []error
	for _, o := range all {
		if q, ok := o.(*queue); ok {
			errs = append(errs, q.close())
		}
	}
	c.mu.Lock()
	for id, e := range c.events {
		e.release(c.drv)
		delete(c.events, id)
	}
	c.mu.Unlock()
	for _, kind := range []func(o any) bool{isKernel, isProgram, isRange, func(any) bool { return true }} {
		for id, o := range all {
			if _, queue := o.(*queue); !queue && kind(o) {
				errs = append(errs, c.release(o))
				delete(all, id)
			}
		}
	}
	errs = append(errs, c.unshareAll(), c.unstage(), c.drv.Close())
	c.dev.unfinished.Add(-c.unfinished.Swap(0))
	return errors.Join(errs...)
}

func isKernel(o any) bool  { _, ok := o.(*kernel); return ok }
func isProgram(o any) bool { _, ok := o.(*program); return ok }
func isRange(o any) bool   { m, ok := o.(*mem); return ok && m.kind == driver.MemSub }

// release releases an object that is no queue.
func (c *client) release(o any) error {
	switch o := o.(type) {
	case *mem:
		if o.kind != driver.MemSub {
			c.used.Add(-o.bytes)
			c.dev.used.Add(-o.bytes)
		}
		return c.drv.ReleaseMem(o.h)
	case *sampler:
		return c.drv.ReleaseSampler(o.h)
	case *program:
		return c.drv.ReleaseProgram(o.h)
	case *kernel:
		return c.drv.ReleaseKernel(o.h)
	case *queue:
		return o.close()
	}
	return nil
}

// serve reads and carries out messages until the client hangs up or says
// something impossible.
func (c *client) serve() error {
	var buf, body []byte
	var op wire.Op
	var err error
	for {
		if op, body, buf, err = wire.ReadFrame(c.in, buf); err != nil {
			return err
		}
		if err = c.dispatch(op, &wire.Reader{B: body}); err != nil {
			return err
		}
	}
}

// dispatch carries out one message. An error ends the connection: it is one that
// no client of ours can cause.
func (c *client) dispatch(op wire.Op, r *wire.Reader) error {
	switch op { // the frequent ones do without new memory
	case wire.OpLaunch:
		c.launch.Decode(r)
		return firstError(r.End, func() error { return c.doLaunch(&c.launch) })
	case wire.OpTransfer:
		c.transfer.Decode(r)
		return firstError(r.End, func() error { return c.doTransfer(&c.transfer) })
	case wire.OpDirect:
		c.direct.Decode(r)
		return firstError(r.End, func() error { return c.doDirect(&c.direct) })
	case wire.OpCopy:
		c.copying.Decode(r)
		return firstError(r.End, func() error { return c.doCopy(&c.copying) })
	case wire.OpMarker:
		c.marker.Decode(r)
		return firstError(r.End, func() error { return c.doMarker(&c.marker) })
	}
	m := wire.New(op)
	if m == nil {
		return fmt.Errorf("%w: operation %d", wire.ErrProtocol, op)
	}
	m.Decode(r)
	if err := r.End(); err != nil {
		return err
	}
	switch m := m.(type) {
	case *wire.SetArg:
		return c.doSetArg(m)
	case *wire.CreateMem:
		return c.reply(m.Req, c.createMem(m), nil)
	case *wire.CreateSampler:
		return c.reply(m.Req, c.createSampler(m), nil)
	case *wire.Build:
		c.builds.Go(func() { _ = c.reply(m.Req, c.build(m), nil) })
		return nil
	case *wire.CreateKernel:
		args, err := c.createKernel(m)
		return c.reply(m.Req, err, func(w *wire.Writer) { w.Uint(uint64(args + 1)) })
	case *wire.CreateQueue:
		return c.reply(m.Req, c.createQueue(m), nil)
	case *wire.Release:
		return c.doRelease(m.ID)
	case *wire.Flush:
		return c.doFlush(m)
	case *wire.Finish:
		return c.doFinish(m)
	case *wire.Ask:
		return c.doAsk(m)
	case *wire.Forget:
		c.forget(driver.Event(m.Event))
		return nil
	case *wire.Unshare:
		return c.unshare(m.Region)
	case *wire.Export:
		return c.export(m)
	case *wire.Pull:
		return c.pull(m)
	case *wire.Moved:
		if m.Err == "" {
			c.moved.Store(true)
		}
		c.s.moved(*m)
		return nil
	}
	return fmt.Errorf("%w: operation %d from a client", wire.ErrProtocol, op)
}

func firstError(do ...func() error) error {
	for _, f := range do {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// reply answers a request; body is for those that succeeded.
func (c *client) reply(req uint64, err error, body func(*wire.Writer)) error {
	m := &wire.Reply{Req: req, Err: err}
	if err == nil && body != nil {
		var w wire.Writer
		body(&w)
		m.Body = w.B
	}
	return c.out.Now(m)
}

// object finds an object of one type by its number.
func object[T any](c *client, id uint64, what string) (o T, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.objects[id].(T)
	if !ok {
		return o, fmt.Errorf("%w: there is no %s %d", wire.ErrProtocol, what, id)
	}
	return o, nil
}

// add enters an object under the number that the client chose.
func (c *client) add(id uint64, o any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == 0 || c.objects[id] != nil {
		return fmt.Errorf("%w: object number %d is in use", wire.ErrProtocol, id)
	}
	c.objects[id] = o
	return nil
}
