package mpiwrap_test

import (
	"fmt"
	"log"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// Each rank passes a number round a ring and all add up what they got. Under
// mpirun the world comes from mpiwrap.Init; here the ranks are simulated.
func Example() {
	err := mpitest.Run(4, 1, func(world *mpiwrap.Comm) error {
		next := (world.Rank() + 1) % world.Size()
		got := []int{0}
		r, err := mpiwrap.Irecv(world, got, mpiwrap.AnySource, 0)
		if err != nil {
			return err
		}
		if err := mpiwrap.Send(world, []int{world.Rank()}, next, 0); err != nil {
			return err
		}
		if _, err := r.Wait(); err != nil {
			return err
		}
		sum := []int{0}
		if err := mpiwrap.Allreduce(world, sum, got, mpiwrap.Sum); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println("sum of ranks:", sum[0])
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: sum of ranks: 6
}
