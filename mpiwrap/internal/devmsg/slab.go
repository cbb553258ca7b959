package devmsg

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/random"
	"github.com/holdfast-hpc/holdfast/internal/shm"
	"golang.org/x/sys/unix"
)

// A slab is memory of one rank, the sender, that other ranks of the node map. It begins with a page of the processes
// that have mapped it and pages of the states of its slots; the slots follow.
//
// Only the sender takes slots. A slot of a message goes from free to filling, and to ready when
// the device has filled it, or to spoilt when it could not; the receiver makes it free again.
// The first slot of a rendezvous has the receiver's CTS meanwhile, or that it comes too late.
// So the two sides exchange only states, and a message that lies in a slab
// needs nothing more of the sender: it may compute, or end.
const (
	maxMappers = 1024
	stateAt    = 4096 + 4*maxMappers
)

// Sizes that tests make smaller, alike for all ranks.
var (
	// SlotBytes is the size of a slot.
	SlotBytes = 256 << 10
	// LargeBytes is the shortest message that goes beside a header.
	LargeBytes = 64 << 10
	// SlabSlots is how many slots the first slab of a rank has.
	SlabSlots = 256
	// VectorBytes is how much of a vector a collective that works piece by piece takes at a
	// time: a multiple of every element.
	VectorBytes = 4 << 20
	// Patience is how long a sender waits for the CTS of a receiver before it goes through host memory, and Patient the
	// addition for the bytes.
	Patience = 100 * time.Microsecond
	// Apart has ranks send as between nodes: none maps another's slab.
	Apart = false
	// MostBytes bounds the slabs of a rank; data without room in them goes as one message.
	MostBytes = 1 << 30
)

// Unit returns how many bytes a piece of a message of n bytes has: some eight pieces overlap well, each takes two
// processes some 10 us besides its bytes, so that four are better up to 1 MiB each, and none above 4 MiB is faster.
func Unit(n int) int {
	slots := Slots(n)
	return SlotBytes * max(min(slots/8, 16), min(slots/4, 4), 1)
}

// Patient returns how long the sender of n bytes waits for the receiver's CTS: about as long as n bytes
// take through host memory, so that a sender that waits in vain takes at most twice as long.
func Patient(n int) time.Duration { return Patience + time.Duration(n/16) }

// State is that of a slot.
type State = uint32

// The states of a slot.
const (
	Free State = iota
	Filling
	Ready
	Spoilt
	Later    // the receiver's CTS: it does other things first, and the bytes come in the slab
	Now      // the receiver's CTS: it takes the bytes over MPI, in pieces; the sender makes the slots free
	NowWhole // the same, as one piece
	Staged   // the sender waits for no CTS any more; the bytes come in the slab
)

// Slab is one, mapped.
type Slab struct {
	ID   ID
	file *os.File // the sender's
	mem  []byte
	data []byte

	mu     sync.Mutex
	next   int          // first slot of the search for free ones
	pinned map[any]bool // devices that it is page-locked for
}

func dataAt(slots int) int { return (stateAt + 4*slots + 4095) &^ 4095 }

// NewSlab makes one with a number of slots.
func NewSlab(slots int) (*Slab, error) {
	var nonce [16]byte
	random.Fill(nonce[:])
	size := dataAt(slots) + slots*SlotBytes
	f, mem, err := shm.New("messages-"+hex.EncodeToString(nonce[:]), size)
	if err != nil {
		return nil, fmt.Errorf("for messages: %w", err)
	}
	return &Slab{file: f, mem: mem, data: mem[dataAt(slots):], pinned: map[any]bool{},
		ID: ID{Nonce: nonce, PID: os.Getpid(), FD: int(f.Fd()), Slots: slots}}, nil
}

// Map opens another rank's slab, if it is of this machine: the process that the ID names has a
// file with the slab's nonce in its name.
func Map(id ID) (*Slab, error) {
	path := fmt.Sprintf("/proc/%d/fd/%d", id.PID, id.FD)
	target, err := os.Readlink(path)
	if err != nil {
		return nil, err
	}
	if id.Slots <= 0 || id.Slots > 1<<20 || !strings.Contains(target, hex.EncodeToString(id.Nonce[:])) {
		return nil, fmt.Errorf("%s is %s, not the memory that a message names", path, target)
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	mem, err := shm.Map(f)
	if err != nil {
		return nil, err
	}
	if size := dataAt(id.Slots) + id.Slots*SlotBytes; len(mem) != size {
		return nil, errors.Join(fmt.Errorf("shared memory %s has %d bytes; the message announces %d", path, len(mem),
			size), shm.Free(mem))
	}
	return &Slab{ID: id, mem: mem, data: mem[dataAt(id.Slots):], pinned: map[any]bool{}}, nil
}

func (s *Slab) word(at int) *uint32 { return (*uint32)(unsafe.Pointer(&s.mem[at])) }

// State returns the state of a slot.
func (s *Slab) State(slot int) State { return atomic.LoadUint32(s.word(stateAt + 4*slot)) }

// Set changes the states of n slots.
func (s *Slab) Set(slot, n int, to State) {
	for i := range n {
		atomic.StoreUint32(s.word(stateAt+4*(slot+i)), to)
	}
}

// Answer changes the state of the first slot of a rendezvous, and reports whether the other side has not done so.
func (s *Slab) Answer(slot int, to State) bool {
	return atomic.CompareAndSwapUint32(s.word(stateAt+4*slot), Filling, to)
}

// Bytes returns n bytes from the beginning of a slot on.
func (s *Slab) Bytes(slot, n int) []byte { return s.data[slot*SlotBytes:][:n:n] }

// Slots returns how many slots n bytes take.
func Slots(n int) int { return (n + SlotBytes - 1) / SlotBytes }

// Take reserves slots that lie side by side for filling, or returns false.
func (s *Slab) Take(slots int) (first int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, from := range []int{s.next, 0} {
		run := 0
		for i := from; i < s.ID.Slots; i++ {
			if run++; s.State(i) != Free {
				run = 0
			}
			if run == slots {
				first = i + 1 - slots
				s.Set(first, slots, Filling)
				s.next = i + 1
				return first, true
			}
		}
	}
	return 0, false
}

// Pin page-locks the slab for the device of m, once.
func (s *Slab) Pin(m Memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := m.Device(); !s.pinned[d] {
		maps.DeleteFunc(s.pinned, func(d any, _ bool) bool { return Closed(d) })
		s.pinned[d] = true
		_, _ = m.Pin(s.data) // without, transfers take longer
	}
}

// Announce tells the sender that a world rank has mapped its slab. A slab that has been mapped
// by too many stays as it is: the sender goes on sending over MPI.
func (s *Slab) Announce(worldRank int) {
	for i := range maxMappers {
		w := s.word(4096 + 4*i)
		if v := atomic.LoadUint32(w); v == uint32(worldRank)+1 {
			return
		} else if v == 0 && atomic.CompareAndSwapUint32(w, 0, uint32(worldRank)+1) {
			return
		}
	}
}

// MappedBy reports whether a world rank has announced that it has mapped the slab.
func (s *Slab) MappedBy(worldRank int) bool {
	for i := range maxMappers {
		switch atomic.LoadUint32(s.word(4096 + 4*i)) {
		case uint32(worldRank) + 1:
			return true
		case 0:
			return false
		}
	}
	return false
}
