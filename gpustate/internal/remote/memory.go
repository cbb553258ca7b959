package remote

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// memory is memory that this process and the server have both mapped, in addition to the slots: host buffers and pinned
// memory. Transfers to and from it are not copied on the way. It is passed through a connection of its own.
type memory struct {
	key   wire.Key
	token []byte // tells the server whose memory it is

	mu   sync.Mutex
	conn *net.UnixConn
	list atomic.Pointer[[]region] // replaced, never changed
}

// region is one piece of shared memory.
type region struct {
	id   uint64
	host []byte
}

func (m *memory) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn == nil {
		return nil
	}
	err := m.conn.Close()
	m.conn = nil
	return err
}

// share lets the server map memory; false if it cannot.
func (d *Device) share(f *os.File, host []byte) (id uint64, ok bool) {
	if d.arena == nil || f == nil {
		return 0, false
	}
	m := &d.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn == nil && d.dialMemory() != nil {
		return 0, false
	}
	id = d.id()
	patience := d.silence + time.Duration(len(host)>>28)*time.Second // 256 MiB are pinned in far less
	err := errors.Join(m.conn.SetDeadline(time.Now().Add(patience)), wire.Grant(m.conn, f, id, len(host)))
	if err == nil {
		var reply wire.Reply
		if err = expect(bufio.NewReader(m.conn), &reply); err == nil {
			err = reply.Err
		}
	}
	if err != nil {
		_ = m.conn.Close() // the server has sent its answer
		m.conn = nil
		return 0, false
	}
	list := []region{{id, host}}
	if old := m.list.Load(); old != nil {
		list = append(list, *old...)
	}
	m.list.Store(&list)
	return id, true
}

// dialMemory connects for memory; mu is held.
func (d *Device) dialMemory() error {
	c, err := wire.Dial(context.Background(), d.addr, d.memory.key, wire.ForMemory)
	if err != nil {
		return err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return errors.Join(driver.ErrUnsupported, c.Close())
	}
	if _, err := u.Write(d.memory.token); err != nil {
		return errors.Join(err, u.Close())
	}
	d.memory.conn = u
	return nil
}

// unshare ends the use of shared memory. No transfer uses it.
func (d *Device) unshare(id uint64) {
	m := &d.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(*m.list.Load()), func(r region) bool { return r.id == id })
	m.list.Store(&list)
	_ = d.send(&wire.Unshare{Region: id}) // a lost server has unmapped it
}

// region finds the shared memory that host lies in.
func (m *memory) region(host []byte) (id uint64, at int64, ok bool) {
	list := m.list.Load()
	if list == nil || len(host) == 0 {
		return 0, 0, false
	}
	p := uintptr(unsafe.Pointer(unsafe.SliceData(host)))
	for _, r := range *list {
		base := uintptr(unsafe.Pointer(unsafe.SliceData(r.host)))
		if p >= base && p-base <= uintptr(len(r.host)-min(len(host), len(r.host))) && len(host) <= len(r.host) {
			return r.id, int64(p - base), true
		}
	}
	return 0, 0, false
}

// eagerBytes is how much a write that blocks copies to a slot also out of shared
// memory: it then need not wait for the server, which takes longer than the copy.
const eagerBytes = 128 << 10

// direct moves bytes between an object and shared memory; ok is false when host
// is not shared, or when the slots are faster.
func (d *Device) direct(q *queue, m wire.Direct, host []byte, blocking bool) (ev driver.Event, ok bool, err error) {
	if m.Write && blocking && len(host) <= eagerBytes {
		return 0, false, nil
	}
	id, at, ok := d.memory.region(host)
	if !ok {
		return 0, false, nil
	}
	if m.Wait, err = d.after(q, m.Wait); err != nil {
		return 0, true, err
	}
	if err := d.filled(q, !m.Write, host, true); err != nil {
		return 0, true, err
	}
	var fills *filling
	if !m.Write {
		fills = &filling{q: q, host: host, direct: true}
	}
	ev = d.enter(1, fills)
	m.Queue, m.Event, m.Region, m.At, m.Bytes = q.id, uint64(ev), id, at, int64(len(host))
	if err := d.out.Now(&m); err != nil {
		d.drop(ev)
		return 0, true, d.failing(err)
	}
	if !blocking {
		return ev, true, nil
	}
	err = d.WaitEvent(ev)
	d.ReleaseEvent(ev)
	return 0, true, err
}

// pinned is memory that the server has mapped.
type pinned struct {
	d    *Device
	id   uint64
	host []byte
}

func (p *pinned) Bytes() []byte { return p.host }

func (p *pinned) Free() error {
	p.d.unshare(p.id)
	return shm.Free(p.host)
}

// AllocPinned gives memory that the server has mapped too, if it can: not
// through TCP, nor where a limit (on open files) is in the way. Elsewhere pinning
// gains nothing.
func (d *Device) AllocPinned(bytes int) (driver.Pinned, error) {
	if d.arena == nil {
		return driver.Plain(make([]byte, bytes)), nil
	}
	f, b, err := shm.New("memory", bytes)
	if err != nil { // slower, not wrong
		return driver.Plain(make([]byte, bytes)), nil
	}
	id, ok := d.share(f, b)
	if err := f.Close(); err != nil || !ok {
		return driver.Plain(make([]byte, bytes)), errors.Join(err, shm.Free(b))
	}
	return &pinned{d, id, b}, nil
}
