package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// element returns the initial value of an element: a mix of its place, so that no two
// places are likely to be equal.
func (c *config) element(i, j int) uint32 {
	z := (uint64(i)*uint64(c.cols) + uint64(j) + 1) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return uint32((z ^ z>>31) >> 32)
}

// expected returns the value of an element after a number of rounds.
func (c *config) expected(round int64, i, j int) uint32 {
	if round%2 == 1 {
		i, j = j, i
	}
	return c.element(i, j) + uint32(round)
}

func (t *transposer) fill() error {
	lo, hi := share(t.config.rows, t.World.Rank(), t.World.Size())
	block := t.out[:0]
	for i := lo; i < hi; i++ {
		for j := range t.config.cols {
			block = append(block, t.config.element(i, j))
		}
	}
	return t.queue.Write(t.matrix, 0, gpustate.Bytes(block))
}

// check compares every element of the block with the expected value and returns the block.
func (t *transposer) check() ([]uint32, error) {
	rows, cols := t.config.shape(t.round)
	lo, hi := share(rows, t.World.Rank(), t.World.Size())
	block := t.in[:(hi-lo)*cols]
	if err := t.queue.Read(t.matrix, 0, gpustate.Bytes(block)); err != nil {
		return nil, err
	}
	for i := lo; i < hi; i++ {
		for j := range cols {
			if got, want := block[(i-lo)*cols+j], t.config.expected(t.round, i, j); got != want {
				return nil, fmt.Errorf("rank %d: after round %d element %d, %d is %d, want %d",
					t.World.Rank(), t.round, i, j, got, want)
			}
		}
	}
	return block, nil
}

// finish checks the matrix, hashes it, writes the result file and prints the result. It is collective; rank 0 writes.
// The hash is the SHA-256 of the hashes of the lines, so it is the same for any number of ranks.
func (t *transposer) finish() error {
	block, err := t.check()
	if err != nil {
		return err
	}
	rows, cols := t.config.shape(t.round)
	size := t.World.Size()
	var mine []byte
	for at := 0; at < len(block); at += cols {
		sum := sha256.Sum256(gpustate.Bytes(block[at : at+cols]))
		mine = append(mine, sum[:]...)
	}
	counts, displs := make([]int, size), make([]int, size)
	for r := range size {
		lo, hi := share(rows, r, size)
		counts[r], displs[r] = sha256.Size*(hi-lo), sha256.Size*lo
	}
	var all []byte
	if t.World.Rank() == 0 {
		all = make([]byte, sha256.Size*rows)
	}
	if err := mpiwrap.Gatherv(t.World, all, counts, displs, mine, 0); err != nil || t.World.Rank() != 0 {
		return err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "matrix   %d by %d, now %d by %d\nrounds   %d\nsha256   %x\n",
		t.config.rows, t.config.cols, rows, cols, t.round, sha256.Sum256(all))
	if t.config.common.Out != "" {
		if err := job.WriteResult(t.config.common.Out, func(w io.Writer) error {
			_, err := w.Write(text.Bytes())
			return err
		}); err != nil {
			return err
		}
	}
	fmt.Printf("%schecked  every element, on %d ranks\n", text.Bytes(), size)
	return nil
}
