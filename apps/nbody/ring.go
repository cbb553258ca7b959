package main

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// ring sets the accelerations on the device to the gravity of all bodies, at the positions there. It is collective.
// The blocks of all ranks are passed round, so that the bodies of every rank meet all others: first its own block, then
// that of the rank to the left, and so on. While the device works on one block, the next one travels, from device to
// device.
func (s *simulation) ring() error {
	e, ranks, rank := s.engine, s.World.Size(), s.World.Rank()
	block, sends := e.pos, e.queue // the rank's own block has the results of all commands so far
	for phase := range ranks {
		owner := (rank + ranks - phase) % ranks
		n := s.part.size(owner)
		if phase == ranks-1 {
			return e.attract(block, n, phase == 0)
		}
		next := e.in[phase%2]
		// The block that arrives from the left takes the place of one that the queue's commands so far work on.
		left := e.queue.Range(next, 0, bodyBytes*s.part.size((owner+ranks-1)%ranks))
		in, err := mpiwrap.IrecvDevice(s.World, left, (rank+ranks-1)%ranks, phase)
		if err != nil {
			return err
		}
		out, err := mpiwrap.IsendDevice(s.World, sends.Range(block, 0, bodyBytes*n), (rank+1)%ranks, phase)
		if err != nil {
			return err
		}
		if err := errors.Join(e.attract(block, n, phase == 0), mpiwrap.WaitAll(in, out)); err != nil {
			return err
		}
		block, sends = next, e.sends // another's is there, and need not wait for commands that also read it
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

func (p partition) size(rank int) int {
	lo, hi := p.block(rank)
	return hi - lo
}

func (p partition) largest() int { return (p.bodies + p.ranks - 1) / p.ranks }
