package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/apps/matmul/matfile"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// finish checks the product, writes the result file and prints the result. It is collective; rank 0 writes.
func (s *summa[T]) finish() error {
	c := make([]T, s.rows.len()*s.cols.len())
	if err := s.queue.Read(s.deviceC, 0, gpustate.Bytes(c)); err != nil {
		return err
	}
	if err := s.verify(c); err != nil {
		return err
	}
	all, err := s.gather(c)
	if err != nil || s.World.Rank() != 0 {
		return err
	}
	sum := sha256.New()
	if s.config.common.Out == "" {
		err = all.WriteNumPy(sum)
	} else {
		err = job.WriteResult(s.config.common.Out, func(w io.Writer) error {
			return all.WriteNumPy(io.MultiWriter(w, sum))
		})
	}
	if err != nil {
		return err
	}
	var squares float64
	for _, v := range all.Data {
		squares += v * v
	}
	fmt.Printf("product  %dx%d by %dx%d on a grid of %d by %d ranks, %d panels\n", s.input.m, s.input.k,
		s.input.k, s.input.n, s.grid.rows, s.grid.cols, len(s.panels))
	fmt.Printf("checked  on %d vectors\n", s.config.checks)
	fmt.Printf("norm     %.9g\n", math.Sqrt(squares)) // Frobenius's
	fmt.Printf("sha256   %x\n", sum.Sum(nil))
	return nil
}

func (s *summa[T]) gather(mine []T) (*matfile.Matrix, error) {
	ranks := s.World.Size()
	counts, displs := make([]int, ranks), make([]int, ranks)
	at := 0
	for r := range ranks {
		rows, cols := s.blockOf(r)
		counts[r], displs[r] = rows.len()*cols.len(), at
		at += counts[r]
	}
	var blocks []T
	if s.World.Rank() == 0 {
		blocks = make([]T, at)
	}
	if err := mpiwrap.Gatherv(s.World, blocks, counts, displs, mine, 0); err != nil || s.World.Rank() != 0 {
		return nil, err
	}
	all := &matfile.Matrix{Rows: s.input.m, Cols: s.input.n, Single: s.config.single}
	all.Data = make([]float64, at)
	for r := range ranks {
		rows, cols := s.blockOf(r)
		from := blocks[displs[r]:]
		for i := range rows.len() {
			for j := range cols.len() {
				all.Data[(rows.lo+i)*all.Cols+cols.lo+j] = float64(from[i*cols.len()+j])
			}
		}
	}
	return all, nil
}

// blockOf returns the rows and columns of C that a rank owns.
func (s *summa[T]) blockOf(rank int) (rows, cols span) {
	g := s.grid
	return share(s.input.m, g.rows, rank/g.cols), share(s.input.n, g.cols, rank%g.cols)
}
