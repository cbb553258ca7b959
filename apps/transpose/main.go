// Transpose turns a matrix that is spread over MPI ranks and their GPUs over and
// over, and checks where every element ends up.
//
//	mpirun -np 4 transpose -size 8192x4096 -rounds 100
//
// See transpose -help for all flags.
package main

import (
	"context"
	"fmt"
	"io"
	"math"
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

type config struct {
	common     job.Options
	rows, cols int
	rounds     int64
}

const usage = `transpose transposes a matrix again and again and checks every element.

Every MPI rank owns a block of rows. In a round it transposes its block on its
device, tile by tile, and adds one to every element; the ranks exchange the pieces
(Alltoallv), and every device puts its pieces together. The value of every element
after any number of rounds is known, so a round that is lost or done twice shows at
the end.
Start it with mpirun or srun, or alone with -ranks 1:

  mpirun -np 4 transpose -size 8192x4096 -rounds 100
  transpose -ranks 1 -size 1000x777 -rounds 7

` + job.Usage + `
All arithmetic is in integers: the result is the same on every device and for any
number of ranks. A wrong element ends the run with an error that names it.
The result file has the size, the rounds and the SHA-256 of the matrix; transpose
writes the SHA-256 of the file itself to NAME.sha256.

Flags:
`

// parse reads the command line. flag.ErrHelp means that help was asked for and
// printed to w.
func parse(args []string, w io.Writer) (*config, error) {
	var c config
	var size string
	c.common.CanBeElastic = true
	fs := c.common.Flags("transpose", usage, "`file` for the size, the rounds and the hash of the matrix", w)
	fs.StringVar(&size, "size", "4096x4096", "rows and columns of the matrix, as `RxC`")
	fs.Int64Var(&c.rounds, "rounds", 10, "how often to turn it over, also after a restart")
	if err := job.Parse(fs, args); err != nil {
		return nil, err
	}
	var rest string
	n, _ := fmt.Sscanf(size+" ", "%dx%d%s", &c.rows, &c.cols, &rest)
	switch {
	case n != 2 || c.rows < 1 || c.cols < 1 || c.rows > math.MaxInt32 || c.cols > math.MaxInt32:
		return nil, fmt.Errorf("-size %s: want RxC, such as 4096x1024", size)
	case c.rounds < 0:
		return nil, fmt.Errorf("-rounds %d: want 0 or more", c.rounds)
	}
	return &c, nil
}
