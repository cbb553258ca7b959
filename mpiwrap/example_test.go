package mpiwrap_test

import (
	"errors"
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

// ranks runs a program on simulated ranks; under mpirun each rank is a process, and the world comes from mpiwrap.Init.
func ranks(n int, program func(world *mpiwrap.Comm) error) {
	if err := mpitest.Run(n, 1, program); err != nil {
		log.Fatal(err)
	}
}

// Rank 0 sends three numbers; rank 1 learns their count from the status.
func ExampleSend() {
	ranks(2, func(world *mpiwrap.Comm) error {
		if world.Rank() == 0 {
			return mpiwrap.Send(world, []float64{1, 2, 3}, 1, 7)
		}
		buf := make([]float64, 10)
		st, err := mpiwrap.Recv(world, buf, 0, mpiwrap.AnyTag)
		if err != nil {
			return err
		}
		n := mpiwrap.StatusCount[float64](st)
		fmt.Println("tag", st.Tag, "values", buf[:n])
		return nil
	})
	// Output: tag 7 values [1 2 3]
}

// A request with a buffer may be pending at a checkpoint: both are protected before Restore.
func ExampleNewRequest() {
	ranks(2, func(world *mpiwrap.Comm) error {
		halo := make([]float64, 2)
		req := mpiwrap.NewRequest(world, halo)
		other := 1 - world.Rank()
		for step := range 2 { // started again in each step
			if err := req.Irecv(other, step); err != nil {
				return err
			}
			if err := mpiwrap.Send(world, []float64{float64(step), 1}, other, step); err != nil {
				return err
			}
			if _, err := req.Wait(); err != nil {
				return err
			}
		}
		if world.Rank() == 0 {
			fmt.Println(halo)
		}
		return nil
	})
	// Output: [1 1]
}

// All ranks get the largest value.
func ExampleAllreduce() {
	ranks(4, func(world *mpiwrap.Comm) error {
		residual := []float64{1 / float64(1+world.Rank())}
		if err := mpiwrap.Allreduce(world, residual, residual, mpiwrap.Max); err != nil { // in place
			return err
		}
		if world.Rank() == 3 {
			fmt.Println(residual[0])
		}
		return nil
	})
	// Output: 1
}

// The ranks compute while their sum is made: sum and part are the library's until Wait.
func ExampleIallreduce() {
	ranks(4, func(world *mpiwrap.Comm) error {
		part, sum := []float64{float64(world.Rank())}, make([]float64, 1)
		req, err := mpiwrap.Iallreduce(world, sum, part, mpiwrap.Sum)
		if err != nil {
			return err
		}
		square := world.Rank() * world.Rank() // other work
		if _, err := req.Wait(); err != nil {
			return err
		}
		if world.Rank() == 3 {
			fmt.Println(sum[0], square)
		}
		return nil
	})
	// Output: 6 9
}

// Rank r contributes r+1 numbers.
func ExampleGatherv() {
	ranks(3, func(world *mpiwrap.Comm) error {
		src := make([]int, world.Rank()+1)
		for i := range src {
			src[i] = world.Rank()
		}
		counts, displs := []int{1, 2, 3}, []int{0, 1, 3}
		all := make([]int, 6)
		if err := mpiwrap.Gatherv(world, all, counts, displs, src, 0); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(all)
		}
		return nil
	})
	// Output: [0 1 1 2 2 2]
}

// Even and odd ranks get a communicator each, in reverse order.
func ExampleComm_Split() {
	ranks(4, func(world *mpiwrap.Comm) error {
		half, err := world.Split(world.Rank()%2, -world.Rank())
		if err != nil {
			return err
		}
		if world.Rank() == 2 {
			fmt.Printf("rank %d of %d: %v\n", half.Rank(), half.Size(), half.Members())
		}
		return half.Free()
	})
	// Output: rank 0 of 2: [2 0]
}

// The neighbours along the first dimension of a periodic grid.
func ExampleComm_Cart() {
	ranks(4, func(world *mpiwrap.Comm) error {
		grid, err := world.Cart([]int{2, 2}, []bool{true, true})
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			from, to, err := grid.Shift(0, 1)
			fmt.Println(from, to)
			return err
		}
		return nil
	})
	// Output: 2 2
}

// Each rank draws a number from a counter in rank 0's part of a window.
func ExampleWinAllocate() {
	ranks(3, func(world *mpiwrap.Comm) error {
		w, err := mpiwrap.WinAllocate[int64](world, 1)
		if err != nil {
			return err
		}
		var ticket int64
		err = errors.Join(w.LockAll(), w.FetchAndOp(0, 0, &ticket, 1, mpiwrap.Sum), w.Flush(0), w.UnlockAll(),
			world.Barrier())
		if world.Rank() == 0 {
			fmt.Println("drawn:", w.Memory()[0])
		}
		return errors.Join(err, w.Free())
	})
	// Output: drawn: 3
}
