package gpud

import (
	"errors"
	"fmt"
	"net"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// region is memory that a client shares.
type region struct {
	b      []byte
	pinned driver.Handle // as the driver knows it, or nil

	// guarded by the client's mutex
	users int  // commands that use it
	gone  bool // unshared: the last user frees it
}

func (c *client) freeRegion(r *region) error {
	var err error
	c.seat.shared.Add(-int64(len(r.b)))
	if r.pinned != nil {
		err = c.drv.ReleaseMem(r.pinned)
	}
	return errors.Join(err, wire.FreeShared(r.b))
}

// share takes memory of the client through a connection of its own.
func (c *client) share(u *net.UnixConn) {
	out := wire.NewSender(u, c.h.patience)
	if !c.sharers.try() {
		_ = out.Now(&wire.Reply{Err: tooMany(maxSharers, "connections for memory")}) // it is closed in any case
		return
	}
	defer c.sharers.give()
	for {
		number, b, err := wire.Accept(u)
		if err == nil {
			err = c.take(number, b)
		}
		if err != nil && hungUp(err) {
			return
		}
		if out.Now(&wire.Reply{Err: err}) != nil || err != nil {
			return
		}
	}
}

// take keeps memory under its number. Pinning much memory takes seconds, in which
// the client's commands go on.
func (c *client) take(number uint64, b []byte) error {
	r := &region{b: b}
	c.mu.Lock()
	if c.tickets == nil { // it goes, and the device with it
		c.mu.Unlock()
		return errors.Join(net.ErrClosed, wire.FreeShared(b))
	}
	if err := c.sharable(int64(len(b))); err != nil {
		c.mu.Unlock()
		return errors.Join(err, wire.FreeShared(b))
	}
	c.seat.shared.Add(int64(len(b)))
	c.builds.Add(1)
	defer c.builds.Done()
	c.mu.Unlock()
	r.pinned = c.pin(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.regions[number] != nil || number == 0 || len(c.regions) >= wire.MaxRegions {
		return errors.Join(fmt.Errorf("%w: memory %d cannot be taken", wire.ErrProtocol, number), c.freeRegion(r))
	}
	c.regions[number] = r
	return nil
}

// pin page-locks memory where the device gains from that and can. Unpinned memory
// works too, at a lower rate.
func (c *client) pin(b []byte) (h driver.Handle) {
	if c.dev.info.Can().Pins {
		h, _ = c.drv.CreateMem(driver.MemDesc{Kind: driver.MemHost, Bytes: int64(len(b)), Host: b})
	}
	return h
}

// unshare frees memory when no command uses it any more.
func (c *client) unshare(number uint64) error {
	c.mu.Lock()
	r := c.regions[number]
	delete(c.regions, number)
	last := r != nil && r.users == 0
	if r != nil {
		r.gone = true
	}
	c.mu.Unlock()
	if r == nil {
		return fmt.Errorf("%w: there is no memory %d", wire.ErrProtocol, number)
	}
	if last {
		c.unmap(r)
	}
	return nil
}

func (c *client) unmap(r *region) {
	if err := c.freeRegion(r); err != nil {
		c.h.log.Warn("unshare", "client", c.ID, "err", err)
	}
}

// use finds the memory that a command moves bytes from or to, nil if they do not
// lie in it. let ends the use.
func (c *client) use(m *wire.Direct) *region {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.regions[m.Region]
	if r == nil || m.At > int64(len(r.b)) || m.Bytes > int64(len(r.b))-m.At {
		return nil
	}
	r.users++
	return r
}

func (c *client) let(r *region) {
	c.mu.Lock()
	r.users--
	last := r.gone && r.users == 0
	c.mu.Unlock()
	if last {
		c.unmap(r)
	}
}

func (c *client) unshareAll() error {
	c.mu.Lock()
	all := c.regions
	c.regions = nil
	c.mu.Unlock()
	var errs []error
	for _, r := range all {
		errs = append(errs, c.freeRegion(r))
	}
	return errors.Join(errs...)
}

// doDirect moves bytes between an object and the client's memory.
func (c *client) doDirect(m *wire.Direct) error {
	q, err := object[*queue](c, m.Queue, "queue")
	if err != nil {
		return err
	}
	o, err := object[*mem](c, m.Mem, "memory object")
	if err != nil {
		return err
	}
	r := c.use(m)
	if r == nil || m.Event == 0 || m.Bytes == 0 || o.kind == driver.MemImage ||
		m.Off > o.bytes || m.Bytes > o.bytes-m.Off {
		return fmt.Errorf("%w: a transfer outside of its memory", wire.ErrProtocol)
	}
	data := r.b[m.At : m.At+m.Bytes]
	i := item{what: "read of a buffer", ev: driver.Event(m.Event), region: r}
	if m.Write {
		i.what = "write of a buffer"
		c.written.Add(m.Bytes)
	} else {
		c.read.Add(m.Bytes)
	}
	return c.issue(q, i, true, m.Wait, func(wait []driver.Event) (driver.Event, error) {
		if m.Write {
			return c.drv.Write(q.h, o.h, m.Off, data, false, wait)
		}
		return c.drv.Read(q.h, o.h, m.Off, data, false, wait)
	})
}
