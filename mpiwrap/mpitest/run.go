// Package mpitest tests programs that use mpiwrap: it runs them on simulated
// ranks, and holds the conformance suite that every message layer passes.
//
// A simulated world is deterministic where MPI is and takes other choices from a seed: when a message becomes visible,
// which sender's comes first, how ranks interleave inside calls. The Go scheduler still decides between ranks that run
// at the same time, so a seed makes a failure likely, not certain.
package mpitest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim/pinned"
)

// Errors of a simulated world.
var (
	// ErrDeadlock: every rank is blocked or has returned. The text names the call that blocks each.
	ErrDeadlock = sim.ErrDeadlock
	// ErrKilled: the call belongs to a rank that Kill has ended.
	ErrKilled = sim.ErrKilled
)

// Call is one call that a rank's program is about to make.
type Call struct {
	Rank int    // world rank
	N    int    // 1 for the rank's first call; the library's own calls do not count
	All  int    // the same, over all ranks
	Op   string // "Send", "Allreduce", ...
}

// Options shape a world.
type Options struct {
	// Seed drives every choice that MPI leaves open.
	Seed uint64
	// Delay is the chance that a call does not see a message yet, 0 to below 1. Above 0,
	// bytes move and one-sided accesses happen as late as MPI allows.
	Delay float64
	// EagerBytes is the longest message that a standard send buffers. Zero means
	// 4096, negative that every send waits for its receive.
	EagerBytes int
	// Pins demands that memory of calls under way is pinned, as a real library does
	// without saying so.
	Pins bool
	// Concurrent grants ThreadMultiple. Then a deadlock is not noticed.
	Concurrent bool
	// OnCall is called before each call of the program, on the rank's
	// goroutine. It may block the rank, ask for a checkpoint, abort the world or
	// kill a rank.
	OnCall func(Call)
}

// World is a simulated job.
type World struct {
	n    int
	opt  Options
	sim  *sim.World
	next atomic.Int64
}

// NewWorld makes a job of n ranks.
func NewWorld(n int, opt Options) *World {
	so := sim.Options{Seed: opt.Seed, Delay: opt.Delay, EagerBytes: opt.EagerBytes, Concurrent: opt.Concurrent}
	if opt.Pins {
		so.Pinned = pinned.Is
	}
	return &World{n: n, opt: opt, sim: sim.New(n, so)}
}

// Abort makes every call of every rank fail with an error that wraps err.
func (w *World) Abort(err error) { w.sim.Abort(err) }

// Kill makes every further call of a rank fail with ErrKilled, as if its process
// were gone. The other ranks get no notice.
func (w *World) Kill(rank int) { w.sim.Kill(rank) }

// Run runs f once per rank and waits for all of them. It returns the errors of
// the ranks, joined, each with its rank. A rank that returns an error or panics does not
// stop the others; when they can no longer go on, they end with ErrDeadlock.
func (w *World) Run(f func(world *mpiwrap.Comm) error) error {
	errs := make([]error, w.n)
	var wg sync.WaitGroup
	for i := range w.n {
		wg.Go(func() {
			defer w.sim.Finish(i)
			if err := w.rank(i, f); err != nil {
				errs[i] = fmt.Errorf("rank %d: %w", i, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (w *World) rank(i int, f func(world *mpiwrap.Comm) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	var n atomic.Int64 // with ThreadMultiple calls overlap
	var observe func(string)
	if w.opt.OnCall != nil {
		observe = func(op string) {
			w.opt.OnCall(Call{Rank: i, N: int(n.Add(1)), All: int(w.next.Add(1)), Op: op})
		}
	}
	c, err := sim.Over(w.sim.Rank(i), observe)
	if err != nil {
		return err
	}
	return f(c.(*mpiwrap.Comm))
}

// Run runs f on n simulated ranks with random delays drawn from seed.
func Run(n int, seed uint64, f func(world *mpiwrap.Comm) error) error {
	return NewWorld(n, Options{Seed: seed, Delay: 0.3, Pins: seed%2 == 1}).Run(f)
}

// SmallPieces makes short messages of device memory go as large ones do: from large bytes on, in
// pieces of slot bytes (a multiple of 4096), through memory of this number of slots. It is for a whole
// test binary, before its first message.
func SmallPieces(large, slot, slots int) {
	devmsg.LargeBytes, devmsg.SlotBytes, devmsg.SlabSlots, devmsg.MostBytes = large, slot, slots, 2*slots*slot
}
