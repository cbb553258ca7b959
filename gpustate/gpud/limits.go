package gpud

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
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
	maxSaid     = 256 << 10 // of what its worker and its kernels print
	maxWaiters  = 32        // threads that wait for commands of its out-of-order queues
	maxSharers  = 16        // connections by which the client shares memory
)

// errTooMany is more than one client may have.
var errTooMany = errors.New("more than the server holds for one client")

func tooMany(most int, what string) error {
	return fmt.Errorf("%w: at most %d %s", errTooMany, most, what)
}

// admit says whether the client may have one more object.
func (c *client) admit(queue bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.objects) >= maxObjects:
		return tooMany(maxObjects, "objects")
	case queue && c.queues >= maxQueues:
		return tooMany(maxQueues, "queues")
	}
	return nil
}

// slots bounds what goes on at the same time.
type slots chan struct{}

func newSlots(n int) slots { return make(slots, n) }

// take waits for a slot.
func (s slots) take() { s <- struct{}{} }

// try takes a slot if one is free.
func (s slots) try() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) give() { <-s }

// sourceBytes is what a program makes the server keep.
func sourceBytes(d *driver.ProgramDesc) int64 {
	return int64(len(d.Name) + len(d.OpenCL) + len(d.CUDA) + len(d.PTX) + len(d.IL) + len(d.Options))
}

// keepSource counts a program's bytes; the sum goes down when the program goes.
func (c *client) keepSource(n int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > maxSources-c.sources {
		return tooMany(maxSources, "bytes of programs")
	}
	c.sources += n
	return nil
}

func (c *client) dropSource(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources -= n
}

// shortLog cuts what a compiler says to a length for people.
func shortLog(err error) error {
	if b, ok := err.(*driver.BuildError); ok && len(b.Log) > maxLogBytes {
		b.Log = b.Log[:maxLogBytes] + "\n(cut off here)"
	}
	return err
}

// sharable says whether a client may share so many bytes more. Pages of shared
// memory are the machine's: one client has at most half of it, all together three
// quarters.
func (c *client) sharable(n int64) error {
	total, _ := machineMemory()
	if total == 0 {
		return nil
	}
	if n > total/2-c.seat.shared.Load() || n > total/4*3-c.h.seats.allShared() {
		return fmt.Errorf("%w: no room for %d bytes of shared memory", wire.ErrProtocol, n)
	}
	return nil
}

// lookBytes is how much a client can have made before a server looks for room again.
const lookBytes = 16 << 20

// roomFor says whether a device whose memory is the machine's has room: what would
// make the machine swap, or kill processes, is out of memory.
//
// To look takes as long as to make a small object, so small ones are looked at
// together.
func (c *client) roomFor(n int64) error {
	if c.unlooked += n; c.unlooked < lookBytes {
		return nil
	}
	n, c.unlooked = max(n, c.unlooked), 0
	i := &c.dev.info
	if most := i.GlobalBytes; most > 0 && n > most-c.h.seats.used(c.who.Index) {
		return fmt.Errorf("%d bytes on a device of %d, of which clients have %d: %w", n, most,
			c.h.seats.used(c.who.Index),
			driver.ErrOutOfMemory)
	}
	if !i.HostMemory {
		return nil
	}
	if total, left := machineMemory(); left > 0 && n > left-hostReserve(total) {
		return fmt.Errorf("%d bytes of the machine's memory, of which %d are available: %w", n, left,
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
