package main

import (
	"context"
	"errors"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// makeEarly makes and frees a communicator, and makes one that stays, before Restore.
func (r *run) makeEarly() error {
	tmp, err := r.world.Dup()
	if err != nil {
		return err
	}
	if err := tmp.Free(); err != nil {
		return err
	}
	r.early, err = r.world.Split(0, -r.world.Rank())
	return err
}

// groups uses communicators that were made before Restore and after it, and temporary
// ones that live across a Point. Messages wait in each of them while Points are passed: what
// is sent on early is received in the next step.
func (r *run) groups(ctx context.Context) error {
	const tag = 1
	n, me := r.world.Size(), r.world.Rank()
	all := make([]int, n)
	for i := range all {
		all[i] = (i + 1) % n
	}
	late, err := r.world.CreateGroup(all, 4)
	if err != nil {
		return err
	}
	for ; r.step < r.steps; r.step++ {
		if r.phase == 0 {
			if err := r.point(ctx); err != nil {
				return err
			}
		}
		tmp, err := r.temporary(all)
		if err != nil {
			return err
		}
		var sends [2]*mpiwrap.Request // one may be to the rank itself
		if r.phase == 0 {             // not at the checkpoint: nothing is sent yet
			out := []float64{r.field[0]}
			for i, c := range []*mpiwrap.Comm{tmp, r.early} {
				if sends[i], err = mpiwrap.Isend(c, out, (c.Rank()+1)%c.Size(), tag); err != nil {
					return err
				}
			}
			r.phase = 1
		}
		if (r.step+me)%3 > 0 {
			if err := r.point(ctx); err != nil {
				return err
			}
		}
		r.compute()
		if err := r.fromLeft(tmp, tag); err != nil {
			return err
		}
		if err := errors.Join(mpiwrap.WaitAll(sends[:]...), tmp.Free()); err != nil {
			return err
		}
		if r.step > 0 {
			if err := r.fromLeft(r.early, tag); err != nil {
				return err
			}
		}
		total := []float64{0}
		if err := mpiwrap.Allreduce(late, total, r.field[:1], mpiwrap.Sum); err != nil {
			return err
		}
		r.field[0] += 0.1 * total[0]
		r.phase = 0
	}
	if r.phase > 0 { // restored in Close
		return nil
	}
	r.phase = 2
	return r.fromLeft(r.early, tag)
}

// temporary makes a communicator, in turn by each way there is.
func (r *run) temporary(all []int) (*mpiwrap.Comm, error) {
	switch r.step % 4 {
	case 0:
		return r.world.Dup()
	case 1:
		return r.world.Split(r.world.Rank()%2, 0)
	case 2:
		return r.world.CreateGroup(all, 5)
	}
	return r.world.Create(all)
}

// fromLeft receives a number from the rank before this one.
func (r *run) fromLeft(c *mpiwrap.Comm, tag int) error {
	in := []float64{0}
	_, err := mpiwrap.Recv(c, in, (c.Rank()+c.Size()-1)%c.Size(), tag)
	r.field[0] = 0.5*r.field[0] + 0.25*in[0]
	return err
}
