// Transpose turns a matrix that is spread over MPI ranks and their GPUs over and
// over, and checks where every element ends up.
//
//	mpirun -np 4 transpose -size 8192x4096 -rounds 100
//
// See transpose -help for all flags.
package main

import (
	"context"
	"os"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
)

func main() {
	c, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = c.common.Run(context.Background(), "transpose", c.transpose)
	}
	job.Exit("transpose", err)
}
