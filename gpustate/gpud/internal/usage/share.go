package usage

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// Share bounds one client's part of its device's memory and of the machine's. The goroutine that carries out the
// client's messages uses it; the counts in it are for all.
type Share struct {
	*Usage
	all   *Table
	quota int64

	index     int // of the device
	info      *driver.Info
	unchecked int64 // bytes of memory made since the server looked for room
}

// NewShare returns the share of the client whose counts are own. quota bounds its bytes of
// device memory, 0: not.
func NewShare(all *Table, own *Usage, quota int64) *Share {
	return &Share{Usage: own, all: all, quota: quota}
}

// Choose makes it a share of the device with this number.
func (s *Share) Choose(index int, info *driver.Info) {
	s.index, s.info = index, info
	s.device.Store(int64(index) + 1)
}

// QuotaError is a memory object that the client's quota has no room for. It
// matches ErrQuota of package gpustate and ErrOutOfMemory.
type QuotaError struct {
	Want, Used, Quota int64 // bytes
}

// Error gives the bytes wanted, those in use, and the quota.
func (e *QuotaError) Error() string {
	return fmt.Sprintf("%v: %d bytes wanted, %d of %d used", wire.ErrQuota, e.Want, e.Used, e.Quota)
}

// Is makes the error match both conditions.
func (e *QuotaError) Is(target error) bool {
	return target == wire.ErrQuota || target == driver.ErrOutOfMemory
}

// Allow reports whether the client may make a memory object of n bytes. The caller adds new objects to Used.
func (s *Share) Allow(n int64) error {
	if used := s.Used.Load(); s.quota > 0 && n > s.quota-used {
		return &QuotaError{Want: n, Used: used, Quota: s.quota}
	}
	return s.roomFor(n)
}

// checkBytes is how much a client can have made before a server checks the room once more.
const checkBytes = 16 << 20

// roomFor reports whether a device whose memory is the machine's has room: bytes that would make the machine swap, or
// kill processes, are out of memory.
//
// To look takes as long as to make a small object, so small ones are looked at
// together.
func (s *Share) roomFor(n int64) error {
	if s.unchecked += n; s.unchecked < checkBytes {
		return nil
	}
	n, s.unchecked = max(n, s.unchecked), 0
	if most := s.info.GlobalBytes; most > 0 && n > most-s.all.used(s.index) {
		return fmt.Errorf("%d bytes wanted; the device has %d, of which clients use %d: %w", n, most,
			s.all.used(s.index), driver.ErrOutOfMemory)
	}
	if !s.info.HostMemory {
		return nil
	}
	if total, left := shm.Machine(); left > 0 && n > left-hostReserve(total) {
		return fmt.Errorf("%d bytes of host memory wanted, %d available: %w", n, left, driver.ErrOutOfMemory)
	}
	return nil
}

// hostReserve returns the bytes that a server leaves of the machine's memory.
func hostReserve(total int64) int64 { return total / 32 }

// Free returns the device memory that the client can have now. free is the device's answer, if known.
func (s *Share) Free(free int64, known bool) int64 {
	if !known {
		total := s.info.GlobalBytes
		free = total - total/20 - s.all.used(s.index)
	}
	if s.info.HostMemory {
		// the machine's memory, of which captures on the device may take a part: their
		// copies are as large as the objects
		total, available := shm.Machine()
		free = min(free, (available-hostReserve(total))/2)
	}
	if s.quota > 0 {
		free = min(free, s.quota-s.Used.Load())
	}
	return max(free, 0)
}

// AllowShared reports whether the client may share n bytes of its memory more. Pages of shared memory are the
// machine's: one client has at most half of it, all together three quarters. The caller adds shared memory to Shared,
// before the next question.
func (s *Share) AllowShared(n int64) error {
	total, _ := shm.Machine()
	if total == 0 {
		return nil
	}
	if n > total/2-s.Shared.Load() || n > total/4*3-s.all.allShared() {
		return fmt.Errorf("%w: no memory left for %d bytes of shared memory", wire.ErrProtocol, n)
	}
	return nil
}
