package request

import (
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/invariants"
)

// slotSize is the longest message that goes through a slot.
const slotSize = 64

// slots is memory that never moves, dealt out to small non-blocking messages:
// copying a few bytes costs a tenth of pinning their buffer. Guarded by
// Rank.own.
type slots struct {
	mem  []byte
	free []int32
}

func newSlots(mem []byte) slots {
	s := slots{mem: mem}
	for i := len(mem)/slotSize - 1; i >= 0; i-- {
		s.free = append(s.free, int32(i))
	}
	return s
}

// inSlot returns memory in a slot for the request's message, or nil when it is
// too long or no slot is left.
func (r *Request) inSlot() []byte {
	n := len(r.buf)
	if n == 0 || n > slotSize {
		return nil
	}
	s := r.c.rank
	s.Lock()
	k := len(s.small.free)
	if k > 0 {
		r.slot = s.small.free[k-1] + 1
		s.small.free = s.small.free[:k-1]
	}
	s.Unlock()
	if k == 0 {
		return nil
	}
	return s.small.bytes(r.slot)[:n]
}

func (s *slots) bytes(slot int32) []byte {
	return s.mem[int(slot-1)*slotSize : int(slot)*slotSize]
}

// fromSlot copies n received bytes to the program and gives the slot back.
func (r *Request) fromSlot(n int) {
	if r.slot == 0 {
		return
	}
	s := r.c.rank
	copy(r.buf[:min(n, len(r.buf))], s.small.bytes(r.slot))
	s.Lock()
	if invariants.Enabled {
		invariants.Check(!slices.Contains(s.small.free, r.slot-1), "mpiwrap: slot %d is freed twice", r.slot-1)
	}
	s.small.free = append(s.small.free, r.slot-1)
	s.Unlock()
	r.slot = 0
}
