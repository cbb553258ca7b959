// Package cut measures how long the ranks of a real MPI program take to
// agree on a cut, beside the program's own iteration.
package cut

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// Options shape a run.
type Options struct {
	Ranks   []int         // numbers of ranks
	Epochs  int           // checkpoints per run
	Compute time.Duration // computing in an iteration
}

// The output of a worker's rank 0, in seconds.
const (
	iterations = "iteration" // with no checkpoint asked for
	toCut      = "to cut"    // from the request
	drain      = "drain"
	capture    = "capture"
)

// Run measures under every MPI that is installed.
func Run(ctx context.Context, r *bench.Runner, o Options) error {
	for _, n := range o.Ranks {
		if n < 2 {
			return fmt.Errorf("--ranks %d: want numbers of 2 or more", n)
		}
	}
	r.Start("cut", len(mpirun.Launchers())*len(o.Ranks))
	for _, l := range mpirun.Launchers() {
		for _, n := range o.Ranks {
			name := fmt.Sprintf("stencil with allreduce, %d ranks, %s", n, l.Title)
			r.Step("%s", name)
			if err := l.Available(); err != nil {
				r.Skip(name, "request to cut", err)
				continue
			}
			res, err := o.launch(ctx, r, l, n)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			r.Add(rows(name, res)...)
		}
	}
	return nil
}

func (o Options) launch(ctx context.Context, r *bench.Runner, l mpirun.Launcher, ranks int) (bench.Set, error) {
	dir, err := os.MkdirTemp("", "holdfast-cut")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	worker := r.Worker("cut", Setup{dir, o.Epochs, o.Compute})
	f, err := bench.Measure(ctx, l.Job(ranks, 2*time.Minute, worker...), iterations)
	if err == nil && len(f.Set[toCut]) == 0 {
		err = errors.New("no checkpoint was taken")
	}
	return f.Set, err
}

// rows compare with an iteration of the program: a request waits for the end of at least one.
func rows(name string, took bench.Set) []bench.Row {
	iteration := took[iterations].Times(1000)
	beyond := took[toCut].Times(1000)
	for i, ms := range beyond {
		beyond[i] = max(ms-iteration.Median(), 0)
	}
	row := func(metric string) bench.Row { return bench.Row{Case: name, Metric: metric, Unit: "ms"} }
	return []bench.Row{
		row("request to cut, beyond an iteration").Of(beyond, iteration, nil),
		row("drain").Of(took[drain].Times(1000), iteration, nil),
		row("capture of 1 MiB a rank").Of(took[capture].Times(1000), iteration, nil),
	}
}
