package session

import (
	"errors"
	"fmt"
	"net"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// region is memory that a client shares.
type region struct {
	b      []byte
	pinned driver.Handle // as the driver knows it, or nil

	// guarded by the client's mutex
	users    int  // commands that use it
	unshared bool // unshared: the last user frees it
}

func (s *Session) freeRegion(r *region) error {
	var err error
	s.usage.Shared.Add(-int64(len(r.b)))
	if r.pinned != nil {
		err = s.drv.ReleaseMem(r.pinned)
	}
	return errors.Join(err, shm.Free(r.b))
}

// Share takes memory of the client through a connection of its own.
func (s *Session) Share(u *net.UnixConn) {
	out := wire.NewSender(u, s.svc.Patience)
	if !s.sharers.TryAcquire(1) {
		_ = out.Now(&wire.Reply{Err: tooMany(maxSharers, "connections for memory")}) // it is closed in any case
		return
	}
	defer s.sharers.Release(1)
	for {
		number, b, err := wire.Accept(u)
		if err == nil {
			err = s.take(number, b)
		}
		if err != nil && HungUp(err) {
			return
		}
		if out.Now(&wire.Reply{Err: err}) != nil || err != nil {
			return
		}
	}
}

// take keeps memory under its number. Pinning much memory takes seconds, in which
// the client's commands go on.
func (s *Session) take(number uint64, b []byte) error {
	r := &region{b: b}
	s.mu.Lock()
	if err := s.usage.AllowShared(int64(len(b))); err != nil {
		s.mu.Unlock()
		return errors.Join(err, shm.Free(b))
	}
	s.usage.Shared.Add(int64(len(b)))
	s.mu.Unlock()
	r.pinned = s.pin(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.regions[number] != nil || number == 0 || len(s.regions) >= wire.MaxRegions {
		return errors.Join(fmt.Errorf("%w: memory %d cannot be taken", wire.ErrProtocol, number), s.freeRegion(r))
	}
	s.regions[number] = r
	return nil
}

// pin page-locks memory where the device gains from that and can. Unpinned memory
// works too, at a lower rate.
func (s *Session) pin(b []byte) (h driver.Handle) {
	if driver.Can(s.dev.Info).Pins {
		h, _ = s.drv.CreateMem(driver.MemDesc{Kind: driver.MemHost, Bytes: int64(len(b)), Host: b})
	}
	return h
}

// unshare frees memory when no command uses it any more.
func (s *Session) unshare(number uint64) error {
	s.mu.Lock()
	r := s.regions[number]
	delete(s.regions, number)
	last := r != nil && r.users == 0
	if r != nil {
		r.unshared = true
	}
	s.mu.Unlock()
	if r == nil {
		return fmt.Errorf("%w: there is no memory %d", wire.ErrProtocol, number)
	}
	if last {
		s.unmap(r)
	}
	return nil
}

func (s *Session) unmap(r *region) {
	if err := s.freeRegion(r); err != nil {
		s.svc.Log.Warn("unshare", "client", s.ID, "err", err)
	}
}

// use finds the memory that a command moves bytes from or to, nil if they do not
// lie in it. let ends the use.
func (s *Session) use(m *wire.Direct) *region {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.regions[m.Region]
	if r == nil || m.At > int64(len(r.b)) || m.Bytes > int64(len(r.b))-m.At {
		return nil
	}
	r.users++
	return r
}

func (s *Session) let(r *region) {
	s.mu.Lock()
	r.users--
	last := r.unshared && r.users == 0
	s.mu.Unlock()
	if last {
		s.unmap(r)
	}
}

// doDirect moves bytes between an object and the client's memory.
func (s *Session) doDirect(m *wire.Direct) error {
	q, o, err := s.places(m.Queue, m.Mem)
	if err != nil {
		return err
	}
	r := s.use(m)
	if r == nil || m.Event == 0 || m.Bytes == 0 || o.isImage() ||
		m.Off > o.bytes || m.Bytes > o.bytes-m.Off {
		return fmt.Errorf("%w: a transfer outside of its memory", wire.ErrProtocol)
	}
	data := r.b[m.At : m.At+m.Bytes]
	i := item{what: "read of a buffer", ev: driver.Event(m.Event), region: r}
	if m.Write {
		i.what = "write of a buffer"
		s.usage.Written.Add(m.Bytes)
	} else {
		s.usage.Read.Add(m.Bytes)
	}
	return s.issue(q, i, true, m.Wait, func(wait []driver.Event) (driver.Event, error) {
		return s.drv.Transfer(q.h, driver.Transfer{Mem: o.h, Place: driver.Bytes(m.Off, m.Bytes), Host: data,
			Read: !m.Write}, wait)
	})
}
