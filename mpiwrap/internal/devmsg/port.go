package devmsg

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Tags of the private communicator: those of pieces from 0 on, then those of CTS, then that of
// trials. The drain's own lies above.
const (
	pieceTags = 16384
	ctsTags   = 8192
	trialTag  = pieceTags + ctsTags
)

// ErrDevice is the error of a message whose device memory cannot be reached.
var ErrDevice = errors.New("device memory of a message cannot be reached")

// Port is a rank's end of the messages of device memory. It is ready with Driver, Info, Self and
// Private.
type Port struct {
	Driver   driver.Driver
	Info     driver.Info
	Self     int           // world rank
	Private  driver.Handle // communicator that carries pieces and CTS
	HostOnly atomic.Bool   // MPI is given no device memory

	Pool                 // host memory for messages
	reads sync.WaitGroup // goroutines that wait for the device

	mu      sync.Mutex // guards the rest
	slabs   []*Slab
	full    bool               // no further slab can be made
	mapped  map[[16]byte]*Slab // of other ranks; nil for those that cannot be
	seq     uint64             // of large messages
	sending []outgoing         // pieces that MPI has not sent
	ctsSent []*cts             // of this rank, that MPI has not sent
	ctsLate []*cts             // to this rank, that no Send waits for any more and that have not come
	ways    map[any]*ways      // by device; the main thread's
	warned  bool               // of a trial that failed; the main thread's
	stats   Stats
}

// span is slots of a slab side by side. The zero value is none.
type span struct {
	slab        *Slab
	slot, slots int
}

func (s span) set(to State) {
	if s.slab != nil {
		s.slab.Set(s.slot, s.slots, to)
	}
}

// outgoing is a piece that MPI is sending.
type outgoing struct {
	h driver.Handle
	span
}

// room reserves slots for n bytes, in a new slab if need be. It returns no slab when they are full.
func (p *Port) room(n int) span {
	p.mu.Lock()
	defer p.mu.Unlock()
	need, have := Slots(n), 0
	for _, s := range p.slabs {
		if slot, ok := s.Take(need); ok {
			return span{s, slot, need}
		}
		have += s.ID.Slots * SlotBytes
	}
	slots := max(SlabSlots, need)
	if p.full || have+slots*SlotBytes > MostBytes {
		return span{}
	}
	s, err := NewSlab(slots)
	if err != nil {
		p.full = true
		slog.Warn("holdfast: large messages of device memory are sent in one piece, which is slower", "error", err)
		return span{}
	}
	p.slabs = append(p.slabs, s)
	slot, _ := s.Take(need)
	return span{s, slot, need}
}

// sweep frees the slots of pieces that MPI has sent. It returns how many pieces and CTS of this rank
// MPI has not sent, and how many late CTS have not come.
func (p *Port) sweep() (unsent, late int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := p.sending[:0]
	for _, o := range p.sending {
		if _, done, err := p.Driver.Test(o.h); !done && err == nil {
			rest = append(rest, o)
			continue
		}
		o.set(Free)
	}
	clear(p.sending[len(rest):])
	p.sending = rest
	// Every CTS that MPI is done with goes.
	over := func(c *cts) bool { return c.over(p.Driver) }
	p.ctsSent, p.ctsLate = slices.DeleteFunc(p.ctsSent, over), slices.DeleteFunc(p.ctsLate, over)
	return len(rest) + len(p.ctsSent), len(p.ctsLate)
}

// Outstanding counts the pieces and CTS that this rank still has in MPI.
func (p *Port) Outstanding() int {
	unsent, late := p.sweep()
	return unsent + late
}

// Busy counts the slots of this rank that hold messages or pieces on their way.
func (p *Port) Busy() (n int) {
	p.sweep()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, slab := range p.slabs {
		for i := range slab.ID.Slots {
			if slab.State(i) != Free {
				n++
			}
		}
	}
	return n
}

// Flush waits until all large messages have left the device and MPI has sent their pieces.
func (p *Port) Flush() {
	p.reads.Wait()
	for spins := 0; ; spins++ {
		if unsent, _ := p.sweep(); unsent == 0 {
			return
		}
		pause(spins)
	}
}

// mapping returns another rank's slab, or nil if it is not of this machine.
func (p *Port) mapping(id ID) *Slab {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, tried := p.mapped[id.Nonce]
	if tried {
		return m
	}
	if p.mapped == nil {
		p.mapped = map[[16]byte]*Slab{}
	}
	m, err := Map(id)
	if err != nil || Apart {
		m = nil // of another machine, or hidden from this process: MPI carries it
	}
	p.mapped[id.Nonce] = m
	if m != nil {
		m.Announce(p.Self)
	}
	return m
}

// errUnread returns the error of a receive whose sender could not read its device.
func errUnread(source int) error {
	return fmt.Errorf("rank %d could not read its device memory: %w", source, ErrDevice)
}

// pause leaves the processor to others while something is awaited for a short time.
func pause(spins int) {
	if spins < 20000 { // some milliseconds: a sleep takes as long as a piece
		runtime.Gosched()
		return
	}
	time.Sleep(20 * time.Microsecond)
}

// Stats is a mpiwrap.DeviceMessages.
type Stats struct {
	SentDirect, SentStaged, ReceivedDirect, ReceivedStaged, CollectivesDirect uint64
	Why                                                                       string
}

// Stats returns the counts so far.
func (p *Port) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// count counts a message or collective in one of stats.
func (p *Port) count(n *uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*n++
}

// because notes why a message does not go directly.
func (p *Port) because(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Why = why
}
