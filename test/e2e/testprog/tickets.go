package main

import (
	"context"
	"errors"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// makeCounter makes a window with a counter on each rank, and protects it behind memory of
// another size on each: the captures of the ranks end apart.
func (r *run) makeCounter() (err error) {
	if r.counter, err = mpiwrap.WinAllocate[int64](r.world, 1); err != nil {
		return err
	}
	ballast := make([]float64, 1+(r.world.Size()-1-r.world.Rank())*r.size*16)
	return errors.Join(r.protect("ballast", &ballast), r.protect("counter", r.counter))
}

// tickets draws numbers from the counters of all ranks by one-sided accesses. Who draws
// which is left to chance; that each is drawn once is not: at the end all ranks know how
// many there were, their sum and the sum of their squares.
func (r *run) tickets(ctx context.Context) error {
	n, me := r.world.Size(), r.world.Rank()
	if r.sum == nil {
		r.sum = make([]float64, 3)
	}
	for ; r.step < r.steps; r.step++ {
		if err := r.point(ctx); err != nil {
			return err
		}
		got, from := int64(0), (me+r.step)%n
		err := errors.Join(r.counter.Lock(from, r.step%2 == 0), r.counter.FetchAndOp(from, 0, &got, 1, mpiwrap.Sum),
			r.counter.Unlock(from))
		if err != nil {
			return err
		}
		x := float64(got)
		r.sum = []float64{r.sum[0] + x, r.sum[1] + x*x, r.sum[2] + 1}
		r.compute()
	}
	if len(r.sum) > 3 { // restored in Close
		return nil
	}
	all := make([]float64, 3)
	if err := mpiwrap.Allreduce(r.world, all, r.sum, mpiwrap.Sum); err != nil {
		return err
	}
	r.sum = append(all, 1) // a mark that this is the total
	return nil
}
