package gpud

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/meminfo"
)

// What one client can make a server hold. All clients together hold at most
// Options.MaxClients times as much, and of shared memory and of host memory that
// stands for a device's less: see sharable and roomFor.
const (
	maxObjects  = 1 << 16   // memory objects, samplers, programs, kernels, queues
	maxQueues   = 256       // of them: each is a queue of the API, a goroutine and a window
	maxSources  = 256 << 20 // bytes of programs
	maxBuilding = 8         // programs that are built or wait for it
	maxCarries  = 16        // transfers to other servers, and from them
	maxOpen     = 1 << 17   // events that are not complete
	maxArgBytes = 64 << 10  // of one value among a kernel's arguments
	maxLogBytes = 256 << 10 // of what a compiler says
	maxOpenBody = 64 << 10  // of the frame that chooses a device
	maxOrder    = 1 << 20   // of an order
	maxOutput   = 256 << 10 // of what its worker and its kernels print
	maxWaiters  = 32        // threads that wait for commands of its out-of-order queues
	maxSharers  = 16        // connections by which the client shares memory
)

// errTooMany is more than one client may have.
var errTooMany = errors.New("over the server's limit for one client")

func tooMany(most int, what string) error {
	return fmt.Errorf("%w: at most %d %s", errTooMany, most, what)
}

// admit says whether the client may have one more object.
func (s *session) admit(queue bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.objects) >= maxObjects:
		return tooMany(maxObjects, "objects")
	case queue && s.queues >= maxQueues:
		return tooMany(maxQueues, "queues")
	}
	return nil
}

// semaphore bounds what runs at the same time.
type semaphore chan struct{}

func newSemaphore(n int) semaphore { return make(semaphore, n) }

// take waits for a place.
func (s semaphore) take() { s <- struct{}{} }

// try takes a place if one is free.
func (s semaphore) try() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s semaphore) give() { <-s }

// sourceBytes is what a program makes the server keep.
func sourceBytes(d *driver.ProgramDesc) int64 {
	return int64(len(d.Name) + len(d.OpenCL) + len(d.CUDA) + len(d.PTX) + len(d.IL) + len(d.Options))
}

// addSource counts a program's bytes; the sum goes down when the program goes.
func (s *session) addSource(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > maxSources-s.sources {
		return tooMany(maxSources, "bytes of programs")
	}
	s.sources += n
	return nil
}

func (s *session) dropSource(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources -= n
}

// shortLog cuts what a compiler says to a length for people.
func shortLog(err error) error {
	if b, ok := err.(*driver.BuildError); ok && len(b.Log) > maxLogBytes {
		b.Log = b.Log[:maxLogBytes] + "\n(truncated)"
	}
	return err
}

// sharable says whether a client may share so many bytes more. Pages of shared
// memory are the machine's: one client has at most half of it, all together three
// quarters.
func (s *session) sharable(n int64) error {
	total, _ := meminfo.Read()
	if total == 0 {
		return nil
	}
	if n > total/2-s.usage.shared.Load() || n > total/4*3-s.svc.usages.allShared() {
		return fmt.Errorf("%w: no memory left for %d bytes of shared memory", wire.ErrProtocol, n)
	}
	return nil
}

// checkBytes is how much a client can have made before a server checks the room once more.
const checkBytes = 16 << 20

// roomFor says whether a device whose memory is the machine's has room: what would
// make the machine swap, or kill processes, is out of memory.
//
// To look takes as long as to make a small object, so small ones are looked at
// together.
func (s *session) roomFor(n int64) error {
	if s.unchecked += n; s.unchecked < checkBytes {
		return nil
	}
	n, s.unchecked = max(n, s.unchecked), 0
	i := &s.dev.info
	if most := i.GlobalBytes; most > 0 && n > most-s.svc.usages.used(s.who.Index) {
		return fmt.Errorf("%d bytes wanted; the device has %d, of which clients use %d: %w", n, most,
			s.svc.usages.used(s.who.Index),
			driver.ErrOutOfMemory)
	}
	if !i.HostMemory {
		return nil
	}
	if total, left := meminfo.Read(); left > 0 && n > left-hostReserve(total) {
		return fmt.Errorf("%d bytes of host memory wanted, %d available: %w", n, left,
			driver.ErrOutOfMemory)
	}
	return nil
}

// hostReserve is what a server leaves of the machine's memory.
func hostReserve(total int64) int64 { return total / 32 }

// bounded passes on so many bytes and drops the rest.
type bounded struct {
	to io.Writer

	mu   sync.Mutex
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := min(len(p), b.left); n > 0 {
		_, _ = b.to.Write(p[:n]) // a log that cannot be written holds up no worker
		if b.left -= n; b.left == 0 {
			_, _ = b.to.Write([]byte("\n(this worker's further output is dropped)\n"))
		}
	}
	return len(p), nil
}
