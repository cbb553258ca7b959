package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// ring is a program whose ranks pass numbers on: deterministic, with a
// reduction now and then. It asks for a checkpoint at step AskAt of rank Asker.
type ring struct {
	Steps        int
	Asker, AskAt int
	Stop         bool
	Results      [64]float64 // by rank
	Restored     atomic.Int64
	Cuts         atomic.Int64
}

// Run returns the program of a rank.
func (p *ring) Run(opt coordinated.Options) func(*mpiwrap.Comm) error {
	return func(world *mpiwrap.Comm) error { return p.RunUnder(context.Background(), world, opt) }
}

// RunUnder is Run with a context of the rank's own.
func (p *ring) RunUnder(ctx context.Context, world *mpiwrap.Comm, opt coordinated.Options) error {
	ck, err := coordinated.Open(ctx, world, opt)
	if err != nil {
		return err
	}
	err = p.Body(ctx, world, ck, opt)
	if err != nil && !errors.Is(err, coordinated.ErrStop) {
		ck.Abort(err)
		return err
	}
	for _, es := range ck.Stats().Epochs {
		p.Cuts.Add(1)
		if es.Rounds < 1 || es.RequestToCut <= 0 || es.Bytes == 0 {
			err = errors.Join(err, fmt.Errorf("stats of epoch %d say too little: %+v", es.Epoch, es))
		}
	}
	return errors.Join(err, ck.Close())
}

// Body is the program from Protect on.
func (p *ring) Body(ctx context.Context, world *mpiwrap.Comm, ck *coordinated.Checkpointer,
	opt coordinated.Options) error {
	n, me := world.Size(), world.Rank()
	step, acc := 0, []float64{float64(me)}
	if err := errors.Join(ck.Protect("step", &step), ck.Protect("acc", &acc)); err != nil {
		return err
	}
	restored, err := ck.Restore(ctx)
	if err != nil {
		return err
	}
	if restored {
		p.Restored.Add(1)
	}
	for ; step < p.Steps; step++ {
		if me == p.Asker && step == p.AskAt && !restored {
			ask := ck.Request
			if p.Stop {
				ask = ck.RequestStop
			}
			if err := ask(ctx); err != nil {
				return err
			}
		}
		if err := ck.Point(ctx); err != nil {
			return err
		}
		if err := mpiwrap.Send(world, []float64{acc[0] + float64(step)}, (me+1)%n, step%3); err != nil {
			return err
		}
		in := []float64{0}
		if _, err := mpiwrap.Recv(world, in, (me+n-1)%n, step%3); err != nil {
			return err
		}
		acc[0] = 0.5*acc[0] + 0.25*in[0]
		if step%4 == 3 {
			sum := []float64{0}
			if err := mpiwrap.Allreduce(world, sum, acc, mpiwrap.Sum); err != nil {
				return err
			}
			acc[0] += 1e-3 * sum[0]
		}
	}
	p.Results[me] = acc[0]
	if me == p.Asker && p.AskAt < p.Steps && !restored && opt.Off() == "" {
		return jobtest.UntilTaken(ctx, ck)
	}
	return nil
}
