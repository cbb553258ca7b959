// Smithwaterman aligns two long sequences locally on GPUs: the best scoring pair of a part of each, with gaps. Every
// MPI rank owns a range of columns of the matrix; the right edge of a range streams to the next rank.
//
//	mpirun -np 4 smithwaterman -a lambda.fa -b other.fa -matrix dna -out best.txt
//
// See smithwaterman -help for all flags.
package main

import (
	"context"
	"os"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
)

func main() {
	c, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = c.common.Run(context.Background(), "smithwaterman", c.align)
	}
	job.Exit("smithwaterman", err)
}
