package opencl

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
	"golang.org/x/sys/unix"
)

// holding lets a program's requests wait, as long as it is paused: they stay where the library has put them.
type holding struct {
	gate    sync.RWMutex // held for reading while a request is carried out
	control sync.RWMutex // the same for the control socket; taken after gate: a request may wait for an area from there
	begun   atomic.Bool  // somebody waits for gate

	mu    sync.Mutex
	list  []*owed // those that may not be over, in the order in which they were carried out
	limit int
}

// enter returns when a socket has something to read, or has ended, and its gate is open, which it holds for reading.
func enter(gate *sync.RWMutex, raw syscall.RawConn) error {
	var b [1]byte
	err := raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(err, unix.EAGAIN)
	})
	if err == nil {
		gate.RLock()
	}
	return err
}

// add keeps a request; the gate is held for reading.
func (h *holding) add(o *owed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.list) >= max(h.limit, 64) || o.bulk != nil { // bytes are not kept for long
		h.sweep()
		h.limit = 2 * len(h.list)
	}
	h.list = append(h.list, o)
}

// sweep drops those that are over; mu is held.
func (h *holding) sweep() {
	h.list = slices.DeleteFunc(h.list, func(o *owed) bool { return !o.kept() && o.heard() })
}

// owed returns those that are not over.
func (h *holding) owed() []*owed {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweep()
	return slices.Clone(h.list)
}

// errBusy: commands do not end in time.
var errBusy = errors.New("its commands do not end in this time")

// quiet lets no request in any more, and returns when all commands are complete but those that wait for a user event.
// After an error the program goes on.
func (s *Server) quiet(wait time.Duration) (err error) {
	end := time.Now().Add(wait)
	s.held.begun.Store(true)
	locked := make(chan struct{})
	go func() {
		s.held.gate.Lock()
		s.held.control.Lock()
		close(locked)
	}()
	defer func() {
		if err != nil {
			go func() { // a request that is under way ends some day
				<-locked
				s.goOn()
			}()
		}
	}()
	select {
	case <-locked:
	case <-s.ended:
		return errors.New("it has ended")
	case <-time.After(wait):
		return errBusy
	}
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		settled := s.settled()
		if err := s.complete(time.Until(end)); err != nil {
			return err
		}
		if settled && s.settled() {
			return nil
		}
		if time.Now().After(end) {
			return errBusy
		}
		time.Sleep(pause)
	}
}

// goOn opens the gates.
func (s *Server) goOn() {
	s.held.begun.Store(false)
	s.held.control.Unlock()
	s.held.gate.Unlock()
}

// settled reports whether nothing changes by itself once the commands that were issued are complete.
func (s *Server) settled() bool {
	s.deliverComplete()
	behind := map[*queue]bool{} // a command that is kept back
	for _, o := range s.held.owed() {
		if o.kept() {
			c := o.event.command.Load()
			if c == nil || !anyKept(c.deps) && !(c.queue.ordered && behind[c.queue]) {
				return false // it is about to be issued
			}
			behind[c.queue] = true
		} else if !o.heard() && (o.tells == nil || !o.tells()) {
			return false
		}
	}
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	for d := range s.outbox.reads {
		if d.event.isIssued() {
			return false
		}
	}
	return true
}

// complete returns when the commands that were issued are complete. An error of one is its queue's, as without a pause.
func (s *Server) complete(wait time.Duration) error {
	done := make(chan error, 1)
	go func() {
		for _, q := range allOf[*queue](s) {
			if err := q.q.Finish(); err != nil {
				if codeOf(err) == clDeviceNotAvailable {
					done <- err
					return
				}
				q.fail(err)
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(max(wait, time.Millisecond)):
		return errBusy
	}
}

// hold pauses the program: its commands are complete, or wait for a user event. Its objects are in memory, besides on
// the devices, once their contents are: with whole they are now, else fill brings them. After an error it goes on.
func (s *Server) hold(wait time.Duration, whole bool) (*kept, error) {
	k, err := newKept(s.contentBytes()) // while it runs
	if err != nil {
		return nil, err
	}
	k.since = time.Now()
	if err = s.quiet(wait); err == nil {
		if err = s.keep(k); err == nil && whole {
			err = k.fill(true)
		}
		if err != nil {
			s.goOn()
		}
	}
	if err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

// holdable returns the reason why the program cannot be paused, nil for none.
func (s *Server) holdable() error {
	if s.ring == nil || s.ring.lost.Load() != 0 {
		return errors.New("it has lost a device")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ordered {
		return errors.New("its objects are in its checkpoints (hf_protect_opencl), which match them by their order")
	}
	return nil
}

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

	tells func() bool // the program's answer waits for a command that is kept back; nil: none is owed
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

// owe notes that news of a request follow its reply. It returns the function that ends that.
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

// request returns the request again, as it came.
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
