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
}

func (r *region) free(drv driver.Device) error {
	var err error
	if r.pinned != nil {
		err = drv.ReleaseMem(r.pinned)
	}
	return errors.Join(err, wire.FreeShared(r.b))
}

// share takes memory of the client through a connection of its own.
func (c *client) share(u *net.UnixConn) {
	out := wire.NewSender(u, c.h.patience)
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

// take keeps memory under its number.
func (c *client) take(number uint64, b []byte) error {
	r := &region{b: b}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.regions == nil || c.regions[number] != nil || number == 0 || len(c.regions) >= wire.MaxRegions {
		return errors.Join(fmt.Errorf("%w: memory %d cannot be taken", wire.ErrProtocol, number), r.free(c.drv))
	}
	if !c.dev.info.HostMemory && c.dev.info.Kind == "cuda" {
		// unpinned memory works too, at a lower rate
		r.pinned, _ = c.drv.CreateMem(driver.MemDesc{Kind: driver.MemHost, Bytes: int64(len(b)), Host: b})
	}
	c.regions[number] = r
	return nil
}

func (c *client) unshare(number uint64) error {
	c.mu.Lock()
	r := c.regions[number]
	delete(c.regions, number)
	c.mu.Unlock()
	if r == nil {
		return fmt.Errorf("%w: there is no memory %d", wire.ErrProtocol, number)
	}
	if err := r.free(c.drv); err != nil {
		c.h.log.Warn("unshare", "client", c.ID, "err", err)
	}
	return nil
}

func (c *client) unshareAll() error {
	c.mu.Lock()
	all := c.regions
	c.regions = nil
	c.mu.Unlock()
	var errs []error
	for _, r := range all {
		errs = append(errs, r.free(c.drv))
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
	c.mu.Lock()
	r := c.regions[m.Region]
	c.mu.Unlock()
	if r == nil || m.Event == 0 || m.Bytes == 0 || o.kind == driver.MemImage ||
		m.Off > o.bytes || m.Bytes > o.bytes-m.Off || m.At > int64(len(r.b)) || m.Bytes > int64(len(r.b))-m.At {
		return fmt.Errorf("%w: a transfer outside of its memory", wire.ErrProtocol)
	}
	data := r.b[m.At : m.At+m.Bytes]
	i := item{what: "read of a buffer", ev: driver.Event(m.Event)}
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
