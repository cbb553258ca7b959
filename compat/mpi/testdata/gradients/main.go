// Gradients trains a line y = a x + b on data spread over the ranks: each rank
// computes the gradient of its part, the ranks add them up, and all take the same
// step. It is written against github.com/emer/empi/mpi.
package main

import (
	"log"

	"github.com/emer/empi/mpi"
)

// part returns the rank's samples of y = 3 x + 1.
func part(rank, size, n int) (x, y []float64) {
	for i := rank; i < n; i += size {
		v := float64(i) / float64(n)
		x, y = append(x, v), append(y, 3*v+1)
	}
	return x, y
}

func gradient(x, y, w []float64) []float64 {
	g := make([]float64, 2)
	for i := range x {
		e := w[0]*x[i] + w[1] - y[i]
		g[0] += 2 * e * x[i]
		g[1] += 2 * e
	}
	return g
}

func main() {
	mpi.Init()
	defer mpi.Finalize()
	comm, err := mpi.NewComm(nil) // use all procs
	if err != nil {
		log.Fatal(err)
	}
	const n = 64
	x, y := part(mpi.WorldRank(), mpi.WorldSize(), n)
	w := []float64{0, 0}
	if comm.Rank() == mpi.Root {
		w[0], w[1] = 0.5, 0.5
	}
	if err := comm.BcastF64(mpi.Root, w); err != nil {
		log.Fatal(err)
	}
	sum := make([]float64, 2)
	for step := 0; step < 300; step++ {
		if err := comm.AllReduceF64(mpi.OpSum, sum, gradient(x, y, w)); err != nil {
			log.Fatal(err)
		}
		w[0] -= 0.5 * sum[0] / n
		w[1] -= 0.5 * sum[1] / n
	}
	counts := make([]int, comm.Size())
	if err := comm.AllGatherInt(counts, []int{len(x)}); err != nil {
		log.Fatal(err)
	}
	total := 0
	for _, c := range counts {
		total += c
	}
	mpi.Printf("procs %d samples %d: y = %.4f x + %.4f\n", mpi.WorldSize(), total, w[0], w[1])
}
