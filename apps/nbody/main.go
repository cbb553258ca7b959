// Nbody integrates bodies under their mutual gravity on GPUs, one block of
// bodies per MPI rank, and continues from its newest checkpoint when it is started
// again:
//
//	mpirun -np 4 nbody -plummer 8192 -steps 1000 -global /scratch/run1 -out end.csv
//
// See nbody -help for all flags.
package main

import (
	"context"
	"os"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
)

func main() {
	c, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = c.common.Run(context.Background(), "nbody", c.simulate)
	}
	job.Exit("nbody", err)
}
