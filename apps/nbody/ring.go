package main

import (
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// A ring passes the blocks of all ranks round, so that the bodies of every rank meet all others:
// first its own block, then that of the rank to the left, and so on.
type ring struct {
	world *mpiwrap.Comm
	part  partition
	// host holds two blocks: the one that is being passed on and the one that
	// arrives.
	host [2][]float32
}

func newRing(world *mpiwrap.Comm, part partition) *ring {
	r := &ring{world: world, part: part}
	for i := range r.host {
		r.host[i] = make([]float32, 4*part.largest())
	}
	return r
}

// gather sets the accelerations on e's device to the gravity of all bodies, at
// the positions there. It is collective. While the device works on one block,
// the next one travels.
func (r *ring) gather(e *engine) error {
	ranks, rank := r.world.Size(), r.world.Rank()
	right, left := (rank+1)%ranks, (rank+ranks-1)%ranks
	held := r.host[0][:4*e.n]
	if err := e.download(held, nil); err != nil {
		return err
	}
	block := e.pos
	var uploaded *gpustate.Event // the copy of held to the device
	for phase := range ranks {
		owner := (rank + ranks - phase) % ranks
		if err := e.attract(block, r.part.size(owner), phase == 0); err != nil {
			return err
		}
		if phase == ranks-1 {
			return finish(uploaded)
		}
		next := r.host[(phase+1)%2][:4*r.part.size((owner+ranks-1)%ranks)]
		if err := r.shift(held, next, right, left, phase); err != nil {
			return err
		}
		// The next phase receives into what this one has sent, so that must have
		// reached the device.
		if err := finish(uploaded); err != nil {
			return err
		}
		var err error
		if uploaded, err = e.queue.WriteAsync(e.in[phase%2], 0, gpustate.Bytes(next)); err != nil {
			return err
		}
		held, block = next, e.in[phase%2]
	}
	return nil
}

// shift sends one block to the right and receives one from the left.
func (r *ring) shift(send, recv []float32, right, left, tag int) error {
	in, err := mpiwrap.Irecv(r.world, recv, left, tag)
	if err != nil {
		return err
	}
	out, err := mpiwrap.Isend(r.world, send, right, tag)
	if err != nil {
		return err
	}
	return mpiwrap.WaitAll(in, out)
}

// finish waits for an event, if there is one.
func finish(e *gpustate.Event) error {
	if e == nil {
		return nil
	}
	return e.Wait()
}
