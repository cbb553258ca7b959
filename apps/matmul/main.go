// Matmul multiplies two dense matrices on GPUs: C = A B by SUMMA on a grid of
// MPI ranks (van de Geijn and Watts, Concurrency 9 (1997) 255).
//
//	mpirun -np 4 matmul -size 4096x4096x4096 -out c.npy
//
// See matmul -help for all flags.
package main

import (
	"context"
	"os"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
)

func main() {
	c, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		body := multiply[float32]
		if !c.single {
			body = multiply[float64]
		}
		err = c.common.Run(context.Background(), "matmul", func(ctx context.Context, j *job.Job) error {
			return body(ctx, c, j)
		})
	}
	job.Exit("matmul", err)
}
