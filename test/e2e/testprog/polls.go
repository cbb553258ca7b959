package main

import (
	"context"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// polls passes a value round the ring; each rank polls for it, by Iprobe or by Test, and
// computes in between. Every second rank reaches a Point in every third step only.
func (r *run) polls(ctx context.Context) error {
	n, me := r.world.Size(), r.world.Rank()
	for ; r.step < r.steps; r.step++ {
		if me%2 == 1 || r.step%3 == 0 {
			if err := r.point(ctx); err != nil {
				return err
			}
		}
		if err := mpiwrap.Send(r.world, r.field[:1], (me+1)%n, r.step%3); err != nil {
			return err
		}
		poll := r.pollByProbe
		if r.step%4 == 3 {
			poll = r.pollByTest
		}
		in, err := poll((me+n-1)%n, r.step%3)
		if err != nil {
			return err
		}
		r.field[0] = 0.5*r.field[0] + 0.25*in
	}
	return nil
}

func (r *run) pollByProbe(left, tag int) (float64, error) {
	source := left
	if r.step%2 == 0 {
		source = mpiwrap.AnySource
	}
	for there := false; !there; r.compute() {
		var err error
		if _, there, err = r.world.Iprobe(source, tag); err != nil {
			return 0, err
		}
	}
	in := []float64{0}
	_, err := mpiwrap.Recv(r.world, in, left, tag)
	return in[0], err
}

func (r *run) pollByTest(left, tag int) (float64, error) {
	in := []float64{0}
	q, err := mpiwrap.Irecv(r.world, in, left, tag)
	for done := false; !done && err == nil; r.compute() {
		_, done, err = q.Test()
	}
	return in[0], err
}
