// Package cut measures how long the ranks of a real MPI program take to
// agree on a cut, beside the program's own iteration.
package cut

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/bench"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// Options shape a run.
type Options struct {
	Self    []string      // command that runs Worker, without its arguments
	Ranks   []int         // numbers of ranks
	Epochs  int           // checkpoints per run
	Compute time.Duration // computing in an iteration
	Note    func(string)  // hears of progress; may be nil
}

// result is what rank 0 of a worker prints.
type result struct {
	Iteration []float64 // seconds, with no checkpoint asked for
	ToCut     []float64 // seconds from the request to the cut
	Drain     []float64 // seconds
	Capture   []float64 // seconds
}

// Run measures under every MPI that is installed.
func Run(ctx context.Context, o Options) ([]bench.Line, error) {
	for _, n := range o.Ranks {
		if n < 2 {
			return nil, fmt.Errorf("--ranks %d: want numbers from 2 on", n)
		}
	}
	var lines []bench.Line
	for _, l := range mpirun.Launchers() {
		for _, n := range o.Ranks {
			line := bench.Line{Suite: "cut", Case: fmt.Sprintf("stencil with allreduce, %d ranks, %s", n, l.Title), Unit: "ms"}
			if o.Note != nil {
				o.Note(line.Case)
			}
			if err := l.Available(); err != nil {
				line.Metric = "request to cut"
				lines = append(lines, bench.Skip(line, err))
				continue
			}
			r, err := o.launch(ctx, l, n)
			if err != nil {
				return lines, fmt.Errorf("%s: %w", line.Case, err)
			}
			lines = append(lines, r.lines(line)...)
		}
	}
	return lines, nil
}

func (o Options) launch(ctx context.Context, l mpirun.Launcher, ranks int) (*result, error) {
	dir, err := os.MkdirTemp("", "holdfast-cut")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	worker := append(o.Self[:len(o.Self):len(o.Self)], "--dir", dir, "--epochs", strconv.Itoa(o.Epochs), "--compute", o.Compute.String())
	line := l.Command(nil, mpirun.Part{Ranks: ranks, Command: worker})
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = mpirun.Environ()
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(text.Bytes()))
	}
	var r result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return nil, fmt.Errorf("output of the worker: %w", err)
	}
	if len(r.ToCut) == 0 {
		return nil, errors.New("no checkpoint was taken")
	}
	return &r, nil
}

// lines compares with the program's own iteration: a request waits for the end
// of one at least.
func (r *result) lines(l bench.Line) []bench.Line {
	iteration := milli(r.Iteration)
	beyond := make(bench.Samples, len(r.ToCut))
	for i, s := range milli(r.ToCut) {
		beyond[i] = max(s-iteration.Median(), 0)
	}
	cut, drain, capture := l, l, l
	cut.Metric, drain.Metric, capture.Metric = "request to cut, beyond an iteration", "drain", "capture of 1 MiB a rank"
	return []bench.Line{
		bench.Against(cut, beyond, iteration, 0),
		bench.Against(drain, milli(r.Drain), iteration, 0),
		bench.Against(capture, milli(r.Capture), iteration, 0),
	}
}

func milli(seconds []float64) bench.Samples {
	out := make(bench.Samples, len(seconds))
	for i, s := range seconds {
		out[i] = 1000 * s
	}
	return out
}
