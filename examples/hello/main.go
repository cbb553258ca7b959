// Hello counts to -steps on every rank, and continues from where it was after a kill.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

func main() {
	steps := flag.Int("steps", 100, "`number` to count to")
	flag.Parse()
	err := run(context.Background(), *steps)
	if err != nil && !errors.Is(err, coordinated.ErrStop) { // ErrStop: after a final checkpoint
		log.Fatal(err) // Finalize would wait for the other ranks
	}
	mpiwrap.Finalize()
}

func run(ctx context.Context, steps int) (err error) {
	world, err := mpiwrap.Init(mpiwrap.Options{}) // Open MPI or MPICH, found at run time
	if err != nil {
		return err
	}
	ck, err := coordinated.Open(ctx, world, coordinated.FromEnv())
	if err != nil {
		return err
	}
	defer ck.CloseOrAbort(&err) // an error on one rank ends the others too

	step := 0
	if err := ck.Protect("step", &step); err != nil {
		return err
	}
	if _, err := ck.Restore(ctx); err != nil { // finds nothing on a first start
		return err
	}
	fmt.Printf("rank %d starts at step %d\n", world.Rank(), step)
	for step < steps {
		time.Sleep(100 * time.Millisecond) // your work, and any MPI through mpiwrap
		step++
		if err := ck.Point(ctx); err != nil { // one atomic load when nothing is asked
			return err
		}
	}
	fmt.Printf("rank %d ends at step %d\n", world.Rank(), step)
	return nil
}
