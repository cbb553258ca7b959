package opencl

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
	"golang.org/x/sys/unix"
)

// area is memory of the program that this process has also mapped: the contents of a mapped buffer, or slots. Transfers
// from and to it are not copied on the way.
type area struct {
	number uint64
	file   *os.File
	bytes  []byte

	mu    sync.Mutex
	ends  []func() error // of devices that know it
	known []*device      // those
	users []*event       // commands that may use it
}

// maxAreas bounds the pieces of memory that a program shares at a time.
const maxAreas = 65536

// areas are those of a program. The library counts them from 1.
type areas struct {
	mu   sync.Mutex
	last uint64
	list map[uint64]*area
	more chan struct{} // closed when one is added
}

// add takes in the next area; the file is the area's.
func (a *areas) add(f *os.File) error {
	b, err := mapSealed(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.list) >= maxAreas {
		return errors.Join(fmt.Errorf("%w: more than %d areas", wire.ErrProtocol, maxAreas), unix.Munmap(b), f.Close())
	}
	a.last++
	if a.list == nil {
		a.list = map[uint64]*area{}
	}
	a.list[a.last] = &area{number: a.last, file: f, bytes: b}
	if a.more != nil {
		close(a.more)
		a.more = nil
	}
	return nil
}

// use notes that a command uses the area until its event is complete.
func (a *area) use(e *event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.users) >= 64 {
		a.users = slices.DeleteFunc(a.users, func(e *event) bool { done, _ := e.done(); return done })
	}
	a.users = append(a.users, e)
}

// forget ends the use of the area by all devices.
func (a *area) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, end := range a.ends {
		_ = end() // a lost server has forgotten it
	}
	_ = unix.Munmap(a.bytes)
	_ = a.file.Close()
	a.ends, a.bytes = nil, nil
}

// forgetAll ends the use of all areas, of which no command uses one any more.
func (a *areas) forgetAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.list {
		one.forget()
	}
	a.list = nil
}

// slot is one of those that a transfer uses in turn.
type slot struct {
	bytes   []byte
	state   *atomic.Uint32
	library *atomic.Uint32 // 1: the library sleeps on state
	here    *atomic.Uint32 // 1: this process does
}

// slots reads the slots of a transfer.
func (h *handler) slots(m *wire.Request) (a *area, list []slot) {
	a = h.area(m, m.U64())
	numbers := m.Numbers()
	m.Check(a != nil && len(a.bytes) == wire.Slots*wire.SlotBytes && len(numbers) > 0 && len(numbers) <= wire.Slots &&
		slices.Max(numbers) < wire.Slots, "slots of a transfer")
	if m.End() != nil {
		return nil, nil
	}
	for _, n := range numbers {
		word := wire.RingWords + int(n)*wire.RingSlot
		list = append(list, slot{a.bytes[n*wire.SlotBytes : (n+1)*wire.SlotBytes],
			h.ring.word(word), h.ring.word(word + 4), h.ring.word(word + 8)})
	}
	return a, list
}

// set gives the slot to the other side.
func (s *slot) set(state uint32) {
	s.state.Store(state)
	if s.library.Load() != 0 {
		shm.Wake(s.state)
	}
}

// await waits until the slot is in a state, and spins first; false when stop reports true, or the
// program ends.
func (s *slot) await(state uint32, stop *atomic.Bool, ended <-chan struct{}) bool {
	spare := shm.SpareCores()
	for begin := time.Now(); ; {
		have := s.state.Load()
		if have == state {
			return true
		}
		select {
		case <-ended:
			return false
		default:
		}
		if stop.Load() {
			return false
		}
		if spare && time.Since(begin) < moment {
			runtime.Gosched()
			continue
		}
		s.here.Store(1)
		if s.state.Load() == have {
			shm.Wait(s.state, have, 100*time.Millisecond)
		}
		s.here.Store(0)
	}
}

// pieces is a transfer of a range of a buffer through slots.
type pieces struct {
	*transfer
	server *Server
	slots  []slot

	failed atomic.Bool
	over   chan struct{} // closed when this process uses the slots no more
}

// issued is a piece that is on its way.
type issued struct {
	number int
	event  *gpustate.Event
}

// count returns how many pieces there are; the last one may be shorter.
func (p *pieces) count() int { return (p.place.region[0] + wire.SlotBytes - 1) / wire.SlotBytes }

func (p *pieces) slot(number int) *slot { return &p.slots[number%len(p.slots)] }

// run issues the pieces one after the other, each when its slot is ready.
func (p *pieces) run(after []*gpustate.Event) (list []*gpustate.Event, err error) {
	going := make(chan issued, p.count())
	p.server.tasks.Go(func() { p.follow(going) })
	defer close(going)
	ready := uint32(wire.Empty)
	if p.write {
		ready = wire.Full
	}
	for k := range p.count() {
		s := p.slot(k)
		if !s.await(ready, &p.failed, p.server.ended) {
			return list, nil // the event of the piece that failed has the error
		}
		s.state.Store(wire.Taken)
		one := p.place
		one.origin[0] += k * wire.SlotBytes
		one.region[0] = min(wire.SlotBytes, p.place.region[0]-k*wire.SlotBytes)
		e, err := one.move(p.queue, s.bytes[:one.region[0]], p.write, after)
		if err != nil {
			p.failed.Store(true)
			return list, err
		}
		list = append(list, e)
		going <- issued{k, e}
	}
	return list, nil
}

// follow gives each slot back when its piece is complete. When one has failed, those that no
// other transfer can have are marked in the end.
func (p *pieces) follow(going <-chan issued) {
	defer close(p.over)
	done := make([]bool, len(p.slots))
	for i := range going {
		if i.event.Wait() != nil {
			p.failed.Store(true)
		}
		if p.failed.Load() {
			continue
		}
		done[i.number%len(p.slots)] = i.number+len(p.slots) >= p.count()
		if p.write {
			p.slot(i.number).set(wire.Empty)
		} else {
			p.slot(i.number).set(wire.Full)
		}
	}
	for i := range p.slots {
		if p.failed.Load() && !done[i] {
			p.slots[i].set(wire.Refused)
		}
	}
}

// refuse is called when the command is not issued.
func (p *pieces) refuse() {
	p.failed.Store(true)
	going := make(chan issued)
	close(going)
	p.follow(going)
}

// throughSlots carries out a transfer of a range of a buffer by way of slots.
func (h *handler) throughSlots(m *wire.Request, t *transfer) (*reply, error) {
	a, list := h.slots(m)
	m.Check(t.place.form == wire.Linear, "a box through slots")
	if err := m.End(); err != nil {
		return nil, err
	}
	p := &pieces{transfer: t, server: h.Server, slots: list, over: make(chan struct{})}
	c := t.command(p.run)
	c.refused, c.slow = p.refuse, p.count() > len(list)
	a.use(t.event)
	left := func() { // the slots
		select {
		case <-p.over:
		case <-h.ended:
		}
	}
	if err := t.queue.enqueue(c); err != nil {
		r, err := h.outcome(t.queue, t.event.id, err)
		if r != nil {
			r.wait = func(*reply) { left() }
		}
		return r, err
	}
	if t.flags&wire.Blocking == 0 {
		return done, nil
	}
	return &reply{deliver: true, wait: func(r *reply) {
		r.status = codeOf(h.wait(t.event))
		left()
	}}, nil
}
