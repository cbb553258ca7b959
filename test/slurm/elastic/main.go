// Elastic is a program under test that any number of ranks continues: a ring of cells in blocks, whose
// result has the same bytes on every number of ranks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	_ "github.com/holdfast-hpc/holdfast/storage/parity"
)

const cells = 10007 // a prime: no number of ranks divides it

func main() {
	steps := flag.Int("steps", 20, "time steps")
	result := flag.String("result", "", "file for a number that is made of all cells")
	hold := flag.String("hold", "", "stay at half the steps, passing Points, until this file exists")
	flag.Parse()
	if err := run(context.Background(), *steps, *hold, *result); err != nil {
		if errors.Is(err, coordinated.ErrStop) {
			mpiwrap.Finalize()
			os.Exit(3)
		}
		log.Fatal(err)
	}
	mpiwrap.Finalize()
}

func run(ctx context.Context, steps int, hold, result string) (err error) {
	world, err := mpiwrap.Init(mpiwrap.Options{})
	if err != nil {
		return err
	}
	opt := coordinated.FromEnv()
	opt.Elastic = true
	ck, err := coordinated.Open(ctx, world, opt)
	if err != nil {
		return err
	}
	defer ck.CloseOrAbort(&err)

	rank, size := world.Rank(), world.Size()
	share := coordinated.Block([]int{cells}, []int{size}, rank)
	first, step := share.Boxes[0].Start[0], 0
	own := make([]uint64, share.Len())
	for i := range own {
		own[i] = uint64(first + i)
	}
	err = errors.Join(ck.ProtectReplicated("step", &step), ck.ProtectGlobal("cells", share, &own))
	if err != nil {
		return err
	}
	restored, err := ck.Restore(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("rank %d of %d: restored=%t step=%d\n", rank, size, restored, step)
	left, right := (rank+size-1)%size, (rank+1)%size
	for ; step < steps; step++ {
		for waits := true; waits; {
			if err := ck.Point(ctx); err != nil {
				return err
			}
			if waits = hold != "" && step == steps/2 && !exists(hold); waits {
				time.Sleep(time.Millisecond) // the pace of looking for a file
			}
		}
		if err := spread(world, own, left, right); err != nil {
			return err
		}
	}
	return write(world, own, first, result)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// spread is one step: each cell mixes with its neighbours, in whole numbers.
func spread(world *mpiwrap.Comm, own []uint64, left, right int) error {
	var before, after [1]uint64
	_, toRight := mpiwrap.Sendrecv(world, own[len(own)-1:], right, 0, before[:], left, 0)
	_, toLeft := mpiwrap.Sendrecv(world, own[:1], left, 1, after[:], right, 1)
	if err := errors.Join(toRight, toLeft); err != nil {
		return err
	}
	was := before[0]
	for i := range own {
		next := after[0]
		if i+1 < len(own) {
			next = own[i+1]
		}
		was, own[i] = own[i], 3*was+own[i]^5*next
	}
	return nil
}

// write has rank 0 write one number of all cells and their places.
func write(world *mpiwrap.Comm, own []uint64, first int, file string) error {
	var sum, all [1]uint64
	for i, v := range own {
		sum[0] += (v ^ v>>29) * uint64(2*(first+i)+1)
	}
	if err := mpiwrap.Allreduce(world, all[:], sum[:], mpiwrap.Sum); err != nil || file == "" || world.Rank() != 0 {
		return err
	}
	return os.WriteFile(file, fmt.Appendf(nil, "%016x\n", all[0]), 0o644)
}
