package opencl

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// owed is a request that is not over: its command is kept back, or the program still waits for news of it.
type owed struct {
	op   uint32
	body []byte
	bulk []byte
	conn *connection // that it came by; nil: by the ring
	slot uint64      // of the ring's reply

	event  *event     // of its command, nil for none
	kernel *kernel    // of a launch, and its arguments
	args   []argument // of then
	area   *area      // that is to end

	tells func() bool // what the program has still to hear waits for a command that is kept back; nil: nothing is owed
	told  *atomic.Bool
	reply bool // the program waits for the reply
}

// reset forgets the request before; most have left nothing.
func (o *owed) reset() {
	if o.event != nil || o.bulk != nil || o.tells != nil || o.area != nil {
		*o = owed{}
	}
}

// begun notes the event of the command that a request has begun.
func (h *handler) begun(e *event) { h.now.event = e }

// owe notes that news of a request follow its reply. It returns what ends that.
func (h *handler) owe(stuck func() bool) (told func()) {
	done := &atomic.Bool{}
	h.now.tells, h.now.told = stuck, done
	return func() { done.Store(true) }
}

// note keeps a request that is not over when it was carried out. It returns nil for others.
func (h *handler) note(m *wire.Request, r *reply, c *connection, slot uint64) *owed {
	kept := h.now.event != nil && !h.now.event.isIssued()
	waits := r.wait != nil && (c != nil || slot != 0)
	if !kept && !waits && h.now.tells == nil {
		return nil
	}
	o := &owed{}
	*o = h.now
	o.op, o.body, o.conn, o.slot = m.Op, m.Body, c, slot
	if !kept {
		o.bulk = nil
	}
	if m.Op == wire.OpLaunch { // its memory is used again
		o.body = bytes.Clone(m.Body)
	}
	if waits {
		o.reply, o.told, o.tells = true, &atomic.Bool{}, r.stuck
		if e := o.event; r.stuck == nil && e != nil {
			o.tells = func() bool { return !e.isIssued() }
		}
	}
	h.held.add(o)
	return o
}

// answer notes that the reply was sent.
func (o *owed) answer() {
	if o != nil && o.reply {
		o.told.Store(true)
	}
}

func (o *owed) kept() bool { return o.event != nil && !o.event.isIssued() }

func (o *owed) heard() bool { return o.told == nil || o.told.Load() }

// request is the request again, as it came.
func (o *owed) request() *wire.Request {
	return &wire.Request{Op: o.op, Body: o.body, Bulk: uint64(len(o.bulk)), Last: o.slot}
}

// anyKept reports whether a command is kept back, or a user event not set.
func anyKept(list []*event) bool {
	for _, e := range list {
		if !e.isIssued() {
			return true
		}
	}
	return false
}

// connection is one for requests.
type connection struct {
	*net.UnixConn
	number int
}

// connections are those of a program.
type connections struct {
	mu   sync.Mutex
	list []*connection
}

// add takes the socket of a new one; the file stays the caller's.
func (l *connections) add(f *os.File) (*connection, error) {
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("%w: a connection that is no socket", wire.ErrProtocol)
	}
	u, ok := c.(*net.UnixConn)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ok || len(l.list) >= wire.MaxConnections {
		_ = c.Close() // nothing was sent
		return nil, fmt.Errorf("%w: more than %d connections, or one that is no Unix socket", wire.ErrProtocol,
			wire.MaxConnections)
	}
	one := &connection{u, len(l.list)}
	l.list = append(l.list, one)
	return one, nil
}

func (l *connections) all() []*connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list[:len(l.list):len(l.list)]
}
