// Matmul multiplies two dense matrices on GPUs: C = A B by SUMMA on a grid of
// MPI ranks (van de Geijn and Watts, Concurrency 9 (1997) 255).
//
//	mpirun -np 4 matmul -size 4096x4096x4096 -out c.npy
//
// See matmul -help for all flags.
package main

import (
	"context"
	"fmt"
	"io"
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

type config struct {
	common  job.Options
	a, b    string
	m, k, n int
	seed    uint64
	single  bool
	width   int
	checks  int
	repeat  int
}

const usage = `matmul multiplies two dense matrices on GPUs, C = A B.

The matrices come from files (-a, -b: NumPy's .npy, rounded to -type) or are made
from a seed (-size MxKxN: A is M by K, B is K by N, numbers from -1 to 1). The ranks
form a grid, and each owns a block of A, B and C. Non-blocking broadcasts bring panels
of A to the ranks of a row and panels of B to the ranks of a column, while the devices
multiply the panels before. Start it with mpirun or srun, or alone with -ranks 1:

  mpirun -np 4 matmul -size 4096x4096x4096 -out c.npy
  matmul -ranks 1 -type float64 -a left.npy -b right.npy -out c.npy

At the end matmul checks the product on vectors of random signs (Freivalds). A
residual beyond the bound of rounding is an error.

` + job.Usage + `
A fixed number of ranks and -panel on one kind of device gives the same bytes
anywhere. Other kinds, numbers of ranks or panels differ by at most twice the
bound of the check: (K + panels + 2) unit roundoffs times |A| |B|.
matmul writes the SHA-256 of the result file to NAME.sha256.

Flags:
`

// parse reads the command line. flag.ErrHelp means that help was asked for and
// printed to w.
func parse(args []string, w io.Writer) (*config, error) {
	var c config
	var size, kind string
	c.common.CanBeElastic = true
	fs := c.common.Flags("matmul", usage, "`file` for C, .npy", w)
	fs.StringVar(&c.a, "a", "", "`file` of A")
	fs.StringVar(&c.b, "b", "", "`file` of B")
	fs.StringVar(&size, "size", "", "make A and B of these sizes, as `MxKxN`")
	fs.Uint64Var(&c.seed, "seed", 1, "seed of the matrices that are made, and of the check")
	fs.StringVar(&kind, "type", "float32", "float32 or float64")
	fs.IntVar(&c.width, "panel", 256, "width of a panel")
	fs.IntVar(&c.checks, "checks", 2, "vectors to check the product on; 0 is none")
	fs.IntVar(&c.repeat, "repeat", 1, "add the product up so many times, C = R A B: a long run of small matrices")
	if err := job.Parse(fs, args); err != nil {
		return nil, err
	}
	c.single = kind == "float32"
	if size != "" {
		var rest string
		if n, _ := fmt.Sscanf(size+" ", "%dx%dx%d%s", &c.m, &c.k, &c.n, &rest); n != 3 || c.m < 1 || c.k < 1 ||
			c.n < 1 {
			return nil, fmt.Errorf("-size %s: want MxKxN, such as 1024x512x2048", size)
		}
	}
	switch {
	case (size == "") == (c.a == "" || c.b == "") || size != "" && c.a+c.b != "":
		return nil, fmt.Errorf("want either -a FILE and -b FILE, or -size MxKxN; see matmul -help")
	case kind != "float32" && kind != "float64":
		return nil, fmt.Errorf("-type %s: want float32 or float64", kind)
	case c.width < 1:
		return nil, fmt.Errorf("-panel %d: want 1 or more", c.width)
	case c.repeat < 1:
		return nil, fmt.Errorf("-repeat %d: want 1 or more", c.repeat)
	case c.checks < 0:
		return nil, fmt.Errorf("-checks %d: want 0 or more", c.checks)
	}
	return &c, nil
}
