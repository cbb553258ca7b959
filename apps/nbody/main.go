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
	"fmt"
	"io"
	"math"
	"os"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/apps/nbody/bodies"
)

func main() {
	c, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = c.common.Run(context.Background(), "nbody", c.simulate)
	}
	job.Exit("nbody", err)
}

type config struct {
	common  job.Options
	in      string
	plummer int
	seed    uint64
	steps   int64
	dt      float64
	eps     float64
	energy  bool

	snapshots     string
	snapshotEvery int64
}

const usage = `nbody integrates bodies under their mutual gravity on GPUs.

The bodies come from a file (-in) or are a Plummer sphere (-plummer). Every MPI
rank owns a block of them on its device and passes it round a ring of ranks, while
the devices compute. Start it with mpirun or srun, or alone with -ranks 1:

  mpirun -np 4 nbody -plummer 8192 -steps 1000 -out end.csv
  nbody -ranks 1 -in end.csv -steps 1000 -out later.csv

` + job.Usage + `
The result file is CSV in the form of the input file. nbody prints the SHA-256 of
the bodies and writes that of the file to NAME.sha256. A fixed number of ranks on one
kind of device gives the same bytes anywhere. Another kind of device rounds
differently: for up to 10,000 bodies nbody prints how far they may then be apart, as
long as that is below 1.

Flags:
`

// parse reads the command line. flag.ErrHelp means that help was asked for and
// printed to w.
func parse(args []string, w io.Writer) (*config, error) {
	var c config
	c.common.CanBeElastic = true
	fs := c.common.Flags("nbody", usage, "`file` for the bodies after the last step", w)
	fs.StringVar(&c.in, "in", "", "CSV `file` of bodies (mass, x, y, z, vx, vy, vz)")
	fs.IntVar(&c.plummer, "plummer", 0, "make a Plummer sphere of this many bodies")
	fs.Uint64Var(&c.seed, "seed", 1, "seed of the Plummer sphere")
	fs.Int64Var(&c.steps, "steps", 100, "time steps in all, also after a restart")
	fs.Float64Var(&c.dt, "dt", 0.001, "time step, in units in which the gravitational constant is 1")
	fs.Float64Var(&c.eps, "eps", 0.05, "softening length; 0 is none")
	fs.BoolVar(&c.energy, "energy", true, "print how the energy has changed (all pairs; on the host where the device "+
		"has no double precision)")
	fs.Int64Var(&c.snapshotEvery, "every", 0, "write a snapshot, CSV, every so many steps; 0 is never")
	fs.StringVar(&c.snapshots, "snapshots", ".", "`directory` for snapshots; it must exist")
	if err := job.Parse(fs, args); err != nil {
		return nil, err
	}
	return &c, c.validate()
}

func (c *config) validate() error {
	switch {
	case (c.in == "") == (c.plummer == 0):
		return fmt.Errorf("want either -in FILE or -plummer N; see nbody -help")
	case c.steps < 0:
		return fmt.Errorf("-steps %d: want 0 or more", c.steps)
	case !(c.dt > 0) || !single(c.dt/2):
		return fmt.Errorf("-dt %g: want a positive number within single precision", c.dt)
	case !(c.eps >= 0) || c.eps > 0 && !single(c.eps*c.eps):
		return fmt.Errorf("-eps %g: want 0 or a positive number whose square is within single precision", c.eps)
	case c.snapshotEvery < 0:
		return fmt.Errorf("-every %d: want 0 or more", c.snapshotEvery)
	}
	return nil
}

// single reports whether single precision has a number without loss of digits at
// either end of its range.
func single(x float64) bool {
	const least = 0x1p-126
	return x >= least && x <= math.MaxFloat32
}

// initial returns the bodies at the start. All ranks make the same.
func (c *config) initial() (*bodies.System, error) {
	if c.plummer != 0 {
		return bodies.Plummer(c.plummer, c.seed)
	}
	f, err := os.Open(c.in)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, err := bodies.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.in, err)
	}
	return s, nil
}
