package session

import (
	"errors"
	"fmt"

	"golang.org/x/sync/semaphore"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// Bounds of the memory that one client can make a server hold. All clients together hold at most Options.MaxClients
// times as much, and of shared memory and of host memory that stands for a device's less: see package usage.
const (
	maxObjects  = 1 << 16   // memory objects, samplers, programs, kernels, queues
	MaxQueues   = 256       // of them: each is a queue of the API, a goroutine and a window
	maxSources  = 256 << 20 // bytes of programs
	maxBuilding = 8         // programs that are built or wait for it
	MaxOpen     = 1 << 17   // events that are not complete
	MaxArgBytes = 64 << 10  // of one value among a kernel's arguments
	maxLogBytes = 256 << 10 // of a compiler's messages
	maxOpenBody = 64 << 10  // of the frame that chooses a device
	MaxWaiters  = 32        // threads that wait for commands of its out-of-order queues
	maxSharers  = 16        // connections by which the client shares memory
)

// turns bound the concurrent work for one client.
type turns struct {
	building *semaphore.Weighted // programs that are built, or wait for it
	sharers  *semaphore.Weighted // connections for memory
	waiters  *semaphore.Weighted // threads that wait for commands out of order
}

func newTurns() turns {
	return turns{building: semaphore.NewWeighted(maxBuilding), waiters: semaphore.NewWeighted(MaxWaiters),
		sharers: semaphore.NewWeighted(maxSharers)}
}

// errTooMany is more than one client may have.
var errTooMany = errors.New("over the server's limit for one client")

func tooMany(most int, what string) error {
	return fmt.Errorf("%w: at most %d %s", errTooMany, most, what)
}

// sourceBytes returns the bytes that a program makes the server keep.
func sourceBytes(d *driver.ProgramDesc) int64 {
	return int64(len(d.Name) + len(d.OpenCL) + len(d.CUDA) + len(d.PTX) + len(d.IL) + len(d.Options))
}

// shortLog cuts a compiler's messages to a length for people.
func shortLog(err error) error {
	if b, ok := err.(*driver.BuildError); ok && len(b.Log) > maxLogBytes {
		b.Log = b.Log[:maxLogBytes] + "\n(truncated)"
	}
	return err
}
