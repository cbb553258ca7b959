// Halo spreads heat along a ring of ranks, which exchange their outermost cells in each step.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

const cells = 1000 // of each rank; heat[0] and heat[cells+1] are the neighbours'

func main() {
	steps := flag.Int("steps", 1000000, "`number` of time steps")
	flag.Parse()
	if err := run(context.Background(), *steps); err != nil && !errors.Is(err, coordinated.ErrStop) {
		log.Fatal(err)
	}
	mpiwrap.Finalize()
}

func run(ctx context.Context, steps int) (err error) {
	world, err := mpiwrap.Init(mpiwrap.Options{})
	if err != nil {
		return err
	}
	ck, err := coordinated.Open(ctx, world, coordinated.FromEnv())
	if err != nil {
		return err
	}
	defer ck.CloseOrAbort(&err)
	step, heat, next := 0, make([]float64, cells+2), make([]float64, cells+2)
	heat[1] = float64(1 + world.Rank())
	if err := errors.Join(ck.Protect("step", &step), ck.Protect("heat", &heat)); err != nil {
		return err
	}
	if _, err := ck.Restore(ctx); err != nil {
		return err
	}
	fmt.Printf("rank %d starts at step %d\n", world.Rank(), step)
	left, right := (world.Rank()+world.Size()-1)%world.Size(), (world.Rank()+1)%world.Size()
	for ; step < steps; step++ {
		_, toRight := mpiwrap.Sendrecv(world, heat[cells:cells+1], right, 0, heat[:1], left, 0)
		_, toLeft := mpiwrap.Sendrecv(world, heat[1:2], left, 1, heat[cells+1:], right, 1)
		if err := errors.Join(toRight, toLeft, ck.Point(ctx)); err != nil {
			return err
		}
		for i := 1; i <= cells; i++ {
			next[i] = heat[i] + 0.25*(heat[i-1]-2*heat[i]+heat[i+1])
		}
		copy(heat, next)
	}
	fmt.Printf("rank %d ends at step %d, heat %v\n", world.Rank(), step, heat[1])
	return nil
}
