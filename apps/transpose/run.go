package main

import (
	"context"
	"fmt"
	"math"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/apps/transpose/kernel"
	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// A transposer is the state of one rank. Protected values are marked.
type transposer struct {
	*job.Job
	config *config

	queue           *gpustate.Queue
	turn, place     *gpustate.Kernel
	matrix, scratch *gpustate.Buffer // protected with the device
	out, in         []uint32         // pieces to and from the other ranks
	round           int64            // protected: rounds done
}

// share returns the part of n lines that a rank of size owns.
func share(n, rank, size int) (lo, hi int) { return n * rank / size, n * (rank + 1) / size }

// shape returns the rows and columns of the whole matrix after a number of
// rounds.
func (c *config) shape(round int64) (rows, cols int) {
	if round%2 == 1 {
		return c.cols, c.rows
	}
	return c.rows, c.cols
}

// transpose is the program on one rank.
func (c *config) transpose(ctx context.Context, j *job.Job) error {
	if size := j.World.Size(); c.rows < size || c.cols < size {
		return fmt.Errorf("matrix of %d by %d on %d ranks: want a row and a column at least per rank",
			c.rows, c.cols, size)
	}
	t := &transposer{Job: j, config: c}
	if err := t.prepare(); err != nil {
		return err
	}
	run := fmt.Sprintf("size %dx%d", c.rows, c.cols)
	matrix := job.Array{Name: "matrix", Memory: coordinated.InBuffer[uint32](t.matrix),
		Layout: coordinated.Block([]int{c.rows, c.cols}, []int{j.World.Size(), 1}, j.World.Rank())}
	restored, err := t.Restore(ctx, run, []job.Array{matrix}, job.State{Name: "round", Value: &t.round})
	if err != nil {
		return err
	}
	if restored && t.round > c.rounds {
		return job.BeyondError("round", t.round, "-rounds", c.rounds)
	}
	if err := t.build(); err != nil {
		return err
	}
	if restored {
		t.Sayf("continues from round %d of %d", t.round, c.rounds)
	} else if err := t.fill(); err != nil {
		return err
	}
	if err := t.loop(ctx); err != nil {
		return err
	}
	return t.finish()
}

// build gets or builds the kernels. It comes after the restore, which builds the
// programs of the checkpoint while it reads the contents.
func (t *transposer) build() error {
	return t.Device.Build("transpose", kernel.Sources, kernel.Options, map[string]**gpustate.Kernel{
		kernel.Transpose: &t.turn, kernel.Place: &t.place,
	})
}

// prepare gets or creates the memory and the queue on the device. The rank's block has at most
// elements elements, whichever way the matrix lies.
func (t *transposer) prepare() (err error) {
	if t.queue, err = t.Device.MainQueue(); err != nil {
		return err
	}
	elements := max(t.block(0), t.block(1))
	if elements > math.MaxInt32 {
		return fmt.Errorf("%d elements on rank %d, at most %d are possible: use more ranks",
			elements, t.World.Rank(), math.MaxInt32)
	}
	// of the host, for the check
	if t.out, err = job.HostMemory[uint32](t.Device, elements); err != nil {
		return err
	}
	if t.in, err = job.HostMemory[uint32](t.Device, elements); err != nil {
		return err
	}
	if t.matrix, err = t.Device.Buffer("matrix", 4*elements); err != nil {
		return err
	}
	t.scratch, err = t.Device.Buffer("scratch", 4*elements)
	return err
}

// block returns the number of elements of the rank's block after a number of
// rounds.
func (t *transposer) block(round int64) int {
	rows, cols := t.config.shape(round)
	lo, hi := share(rows, t.World.Rank(), t.World.Size())
	return (hi - lo) * cols
}

func (t *transposer) loop(ctx context.Context) error {
	shown := t.Progress(int(t.config.rounds))
	for t.round < t.config.rounds {
		// The array that -elastic declares is the matrix as it was at first, which it is again after two rounds.
		if !t.Elastic() || t.round%2 == 0 {
			if err := t.Checkpoints.Point(ctx); err != nil {
				return err
			}
		}
		shown.Step(int(t.round))
		if err := t.turnOver(); err != nil {
			return err
		}
		t.round++
	}
	if err := t.queue.Finish(); err != nil {
		return err
	}
	shown.Step(int(t.round))
	return t.Hold(ctx)
}

// turnOver does one round. The block of the rank, rows lo to hi of the matrix, is transposed; then
// the rows that rank r is to own lie in one piece, because the rows of r follow each other. The
// pieces that arrive are the columns of the new block.
func (t *transposer) turnOver() error {
	rows, cols := t.config.shape(t.round)
	rank, size := t.World.Rank(), t.World.Size()
	lo, hi := share(rows, rank, size)
	newLo, newHi := share(cols, rank, size)
	if err := t.launch(t.turn, kernel.Global(hi-lo, cols), kernel.Local(),
		t.scratch, t.matrix, int32(hi-lo), int32(cols)); err != nil {
		return err
	}
	outCounts, outAt := make([]int, size), make([]int, size)
	inCounts, inAt := make([]int, size), make([]int, size)
	for r := range size {
		theirLo, theirHi := share(cols, r, size)
		outCounts[r], outAt[r] = (theirHi-theirLo)*(hi-lo), theirLo*(hi-lo)
		theirLo, theirHi = share(rows, r, size)
		inCounts[r], inAt[r] = (theirHi-theirLo)*(newHi-newLo), theirLo*(newHi-newLo)
	}
	out, in := t.queue.Range(t.scratch, 0, 4*(hi-lo)*cols), t.queue.Range(t.scratch, 0, 4*(newHi-newLo)*rows)
	err := mpiwrap.AlltoallvDevice[uint32](t.World, in, inCounts, inAt, out, outCounts, outAt)
	if err != nil {
		return err
	}
	for r := range size {
		theirLo, theirHi := share(rows, r, size)
		height, width := newHi-newLo, theirHi-theirLo
		if err := t.launch(t.place, kernel.PlaceGlobal(height, width), kernel.PlaceLocal(), t.matrix, t.scratch,
			int32(inAt[r]), int32(height), int32(width), int32(rows), int32(theirLo)); err != nil {
			return err
		}
	}
	return t.queue.Flush()
}

// launch starts a kernel and returns at once.
func (t *transposer) launch(k *gpustate.Kernel, global, local []int, args ...any) error {
	if err := job.Launch(t.queue, k, global, local, args...); err != nil {
		return fmt.Errorf("round %d: %w", t.round, err)
	}
	return nil
}
