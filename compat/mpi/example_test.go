package mpi_test

import (
	"log"

	"github.com/holdfast-hpc/holdfast/compat/mpi"
)

// A program for empi: only its import line has changed.
func Example() {
	mpi.Init()
	defer mpi.Finalize()
	comm, err := mpi.NewComm(nil)
	if err != nil {
		log.Fatal(err)
	}
	sum := make([]float64, 1)
	if err := comm.AllReduceF64(mpi.OpSum, sum, []float64{float64(comm.Rank())}); err != nil {
		log.Fatal(err)
	}
	mpi.Printf("sum of the ranks: %g\n", sum[0])
}
