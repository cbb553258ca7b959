package main

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// A ring passes the blocks of all ranks round, so that the bodies of every rank meet all others:
// first its own block, then that of the rank to the left, and so on.
type ring struct {
	world *mpiwrap.Comm
	part  partition
}

// gather sets the accelerations on e's device to the gravity of all bodies, at
// the positions there. It is collective. While the device works on one block,
// the next one travels, from device to device.
func (r *ring) gather(e *engine) error {
	ranks, rank := r.world.Size(), r.world.Rank()
	block := e.pos
	for phase := range ranks {
		owner := (rank + ranks - phase) % ranks
		n := r.part.size(owner)
		if phase == ranks-1 {
			return e.attract(block, n, phase == 0)
		}
		next := e.in[phase%2]
		// The block that arrives from the left takes the place of one that the queue's commands so far work on.
		left := e.queue.Range(next, 0, bodyBytes*r.part.size((owner+ranks-1)%ranks))
		in, err := mpiwrap.IrecvDevice(r.world, left, (rank+ranks-1)%ranks, phase)
		if err != nil {
			return err
		}
		out, err := mpiwrap.IsendDevice(r.world, e.outgoing(block, n), (rank+1)%ranks, phase)
		if err != nil {
			return err
		}
		if err := errors.Join(e.attract(block, n, phase == 0), mpiwrap.WaitAll(in, out)); err != nil {
			return err
		}
		block = next
	}
	return nil
}

// A partition deals out bodies to ranks: rank r owns a contiguous block, and
// the sizes of two blocks differ by at most one.
type partition struct{ bodies, ranks int }

// block returns the bodies lo to hi-1 that a rank owns.
func (p partition) block(rank int) (lo, hi int) {
	return p.bodies * rank / p.ranks, p.bodies * (rank + 1) / p.ranks
}

// size returns the number of bodies that a rank owns.
func (p partition) size(rank int) int {
	lo, hi := p.block(rank)
	return hi - lo
}

// largest returns the size of the largest block.
func (p partition) largest() int { return (p.bodies + p.ranks - 1) / p.ranks }
