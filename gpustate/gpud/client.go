package gpud

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// client is one opened device. Its goroutine reads and carries out commands in
// order; each queue has a goroutine that waits for them.
type client struct {
	h     *host
	front front
	last  bool // the process ends with the client
	pass
	*seat
	who  wire.Open
	conn net.Conn
	in   *bufio.Reader
	ear  wire.Ear // behind in
	out  *wire.Sender
	dev  *device
	drv  driver.Device

	arena  []byte     // shared with the client, or nil
	ring   *wire.Ring // conn, when it is through that memory
	stage  []byte     // the slots: the arena, or memory of the driver
	pinned driver.Pinned
	host   driver.Handle // the arena as the driver pinned it, or nil

	mu      sync.Mutex
	regions map[uint64]*region // nil when the client is gone
	objects map[uint64]any
	events  map[driver.Event]*event
	tickets map[string]ticket
	failed  int            // events that are kept because they failed
	queues  int            // of objects
	sources int64          // bytes of programs
	builds  sync.WaitGroup // what goes on beside the reading goroutine

	building slots // programs that are built, or wait for it
	pulls    slots // fetches from other servers
	gives    slots // fetches of other servers
	sharers  slots // connections for memory
	waiters  slots // threads that wait for commands out of order

	unlooked int64 // bytes of memory made since the server looked for room; of the reading goroutine

	// of the reading goroutine: messages that are decoded again and again
	launch   wire.Launch
	setArg   wire.SetArg
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
	program struct {
		h     driver.Handle
		bytes int64 // of its sources
	}
	kernel struct {
		h    driver.Handle
		name string
		bad  map[int]error // arguments that the API refused
	}
)

func newPass(id uint64) (p pass) {
	p.ID = id
	_, _ = rand.Read(p.Token[:]) // never fails
	return p
}

func newClient(h *host, conn net.Conn, p pass, t *seat, f front) *client {
	c := &client{h: h, front: f, pass: p, seat: t, conn: conn, ear: wire.Ear{Reader: conn},
		out: wire.NewSender(conn, h.patience), regions: map[uint64]*region{}, objects: map[uint64]any{},
		events: map[driver.Event]*event{}, tickets: map[string]ticket{},
		building: newSlots(maxBuilding), pulls: newSlots(maxCarries), gives: newSlots(maxCarries),
		sharers: newSlots(maxSharers), waiters: newSlots(maxWaiters)}
	c.in = bufio.NewReaderSize(&c.ear, 64<<10)
	return c
}

// run serves the client from Welcome to the end.
func (c *client) run() {
	if err := c.open(); hungUp(err) {
		return // it found nothing that it likes
	} else if err != nil {
		c.h.log.Warn("client not served", "id", c.ID, "from", c.conn.RemoteAddr().String(), "err", err)
		return
	}
	welcome := c.out
	err := c.useRing()
	if err == nil {
		err = c.front.opened(c.who)
	}
	_ = welcome.Now(&wire.Reply{Req: c.who.Req, Err: err, Body: c.Token[:]}) // if it is gone serve finds out
	if err == nil {
		stop := make(chan struct{})
		go c.beat(stop)
		err = c.serve()
		close(stop)
	} else {
		c.h.log.Warn("client not served", "id", c.ID, "err", err)
	}
	if !hungUp(err) {
		c.dismiss(err.Error())
		c.h.log.Warn("client dropped", "id", c.ID, "err", err)
	}
	_ = c.conn.Close()
	if c.last {
		return // the process ends, and frees more surely what is there
	}
	if err := c.close(); err != nil {
		c.h.log.Warn("client not wholly freed", "id", c.ID, "err", err)
	}
}

// useRing has everything after the reply of Open go through the memory that the
// client shares, if there is any.
func (c *client) useRing() (err error) {
	if c.arena == nil {
		return nil
	}
	if c.ring, err = wire.NewRing(c.conn.(*net.UnixConn), c.arena, false); err != nil {
		return err
	}
	c.ear.Reader = c.ring
	c.conn, c.out = c.ring, wire.NewSender(c.ring, c.h.patience)
	c.in.Reset(&c.ear)
	return nil
}

// hungUp is an end that the client chose, or that its own end chose for it.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) // what it was sent last it has not read
}

// openTime bounds the time until a client has chosen its device.
const openTime = 60 * time.Second

// open offers the devices and opens the one that is chosen.
func (c *client) open() error {
	if err := c.conn.SetReadDeadline(time.Now().Add(openTime)); err != nil {
		return err
	}
	w := &wire.Welcome{Server: c.h.name, Addrs: c.h.addrs, Devices: c.h.infos(), Quota: c.h.quota}
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
		if number != 1 || len(c.arena) != wire.SharedBytes {
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
	op, body, err := wire.ReadSmallFrame(c.in, maxOpenBody)
	if err != nil {
		return err
	}
	r := &wire.Reader{B: body}
	c.who.Decode(r)
	if err := r.End(); op != wire.OpOpen || err != nil {
		return errors.Join(err, fmt.Errorf("%w: no choice of a device", wire.ErrProtocol))
	}
	if err = c.openDevice(); err != nil {
		err = errors.Join(err, c.reply(c.who.Req, err, nil))
	}
	return err
}

func (c *client) openDevice() (err error) {
	if c.who.Index >= len(c.h.devices) {
		return fmt.Errorf("device %d of %d: %w", c.who.Index, len(c.h.devices), wire.ErrProtocol)
	}
	if n := len(c.who.Program) + len(c.who.Host) + len(c.who.Label); n > maxNames {
		return fmt.Errorf("names of %d bytes: %w", n, wire.ErrProtocol)
	}
	c.dev = c.h.devices[c.who.Index]
	if c.drv, err = c.dev.lib.Open(c.dev.at); err != nil {
		return err
	}
	if err = c.stageSlots(); err != nil {
		return errors.Join(err, c.drv.Close())
	}
	c.device.Store(int64(c.who.Index) + 1)
	return nil
}

// maxNames bounds what a client is called.
const maxNames = 4096

// stageSlots makes the memory that pieces of transfers pass through.
func (c *client) stageSlots() (err error) {
	if c.arena != nil {
		c.stage = c.arena
		c.host = c.pin(c.arena[:wire.ArenaBytes])
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
	if c.ring != nil {
		c.ring.Release()
	}
	errs = append(errs, wire.FreeShared(c.arena))
	c.host, c.pinned, c.stage, c.arena = nil, nil, nil, nil
	return errors.Join(errs...)
}

// dismiss tells the client why it is dropped, if it still listens, and drops it.
func (c *client) dismiss(why string) {
	_ = c.out.Now(&wire.Bye{Why: why})
	_ = c.out.Finish() // somebody else who is sending takes it along: wait for him
	if u, ok := c.conn.(interface{ CloseRead() error }); ok {
		_ = u.CloseRead() // ends the reading goroutine, which closes the rest
	}
}

// order asks the client to move.
func (c *client) order(m *wire.Move) error { return c.out.Now(m) }

// close waits for the client's commands and releases all it had.
func (c *client) close() error {
	c.mu.Lock()
	c.tickets = nil
	c.mu.Unlock()
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
	for _, kind := range []func(o any) bool{isKernel, isRange, isProgram, func(any) bool { return true }} {
		for id, o := range all {
			if _, queue := o.(*queue); !queue && kind(o) {
				errs = append(errs, c.release(o))
				delete(all, id)
			}
		}
	}
	errs = append(errs, c.unshareAll(), c.unstage(), c.drv.Close())
	return errors.Join(errs...)
}

func isKernel(o any) bool  { _, ok := o.(*kernel); return ok }
func isProgram(o any) bool { _, ok := o.(*program); return ok }
func isRange(o any) bool   { m, ok := o.(*mem); return ok && !m.counted() }

// release releases an object that is no queue.
func (c *client) release(o any) error {
	switch o := o.(type) {
	case *mem:
		if o.counted() {
			c.used.Add(-o.bytes)
		}
		return c.drv.ReleaseMem(o.h)
	case *sampler:
		return c.drv.ReleaseSampler(o.h)
	case *program:
		c.dropSource(o.bytes)
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
		if c.launch.Decode(r); r.End() != nil {
			return r.Err
		}
		return c.doLaunch(&c.launch)
	case wire.OpSetArg:
		if c.setArg.Decode(r); r.End() != nil {
			return r.Err
		}
		return c.doSetArg(&c.setArg)
	case wire.OpTransfer:
		if c.transfer.Decode(r); r.End() != nil {
			return r.Err
		}
		return c.doTransfer(&c.transfer)
	case wire.OpDirect:
		if c.direct.Decode(r); r.End() != nil {
			return r.Err
		}
		return c.doDirect(&c.direct)
	case wire.OpCopy:
		if c.copying.Decode(r); r.End() != nil {
			return r.Err
		}
		return c.doCopy(&c.copying)
	case wire.OpMarker:
		if c.marker.Decode(r); r.End() != nil {
			return r.Err
		}
		return c.doMarker(&c.marker)
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
	case *wire.CreateMem:
		return c.reply(m.Req, c.createMem(m), nil)
	case *wire.CreateSampler:
		return c.reply(m.Req, c.createSampler(m), nil)
	case *wire.Build:
		c.building.take() // its next messages wait when very many are built
		c.builds.Go(func() {
			defer c.building.give()
			passed, err := c.build(m)
			_ = c.reply(m.Req, err, func(w *wire.Writer) { w.Str(passed) })
		})
		return nil
	case *wire.CreateKernel:
		args, exact, err := c.createKernel(m)
		return c.reply(m.Req, err, func(w *wire.Writer) {
			w.Uint(uint64(args))
			w.Bool(exact)
		})
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
	case *wire.Beat:
		return nil
	case *wire.Unshare:
		return c.unshare(m.Region)
	case *wire.Export:
		return c.export(m)
	case *wire.Pull:
		return c.pull(m)
	case *wire.Moved:
		c.front.moved(*m)
		return nil
	}
	return fmt.Errorf("%w: operation %d from a client", wire.ErrProtocol, op)
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
	if len(c.objects) >= maxObjects { // builds end beside each other
		return tooMany(maxObjects, "objects")
	}
	c.objects[id] = o
	return nil
}
