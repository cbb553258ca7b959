package mpiwrap

// slotSize is the longest receive that goes through a slot.
const slotSize = 64

// slots is memory that never moves, dealt out to small non-blocking receives:
// copying a few bytes at completion costs a tenth of pinning their buffer.
// Guarded by state.own.
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

// target returns where a receive writes: its slot, or its own buffer, pinned.
func (r *Request) target() []byte {
	s := r.c.st
	if r.persistent || len(r.buf) == 0 || len(r.buf) > slotSize {
		r.hold(r.buf)
		return r.buf
	}
	s.lock()
	defer s.unlock()
	n := len(s.small.free)
	if n == 0 {
		r.hold(r.buf)
		return r.buf
	}
	r.slot = s.small.free[n-1] + 1
	s.small.free = s.small.free[:n-1]
	return s.small.bytes(r.slot)[:len(r.buf)]
}

func (s *slots) bytes(slot int32) []byte {
	return s.mem[int(slot-1)*slotSize : int(slot)*slotSize]
}

// fromSlot copies n received bytes to the program and gives the slot back.
func (r *Request) fromSlot(n int) {
	if r.slot == 0 {
		return
	}
	s := r.c.st
	s.lock()
	copy(r.buf[:min(n, len(r.buf))], s.small.bytes(r.slot))
	s.small.free = append(s.small.free, r.slot-1)
	s.unlock()
	r.slot = 0
}
