// Command testprog is the program that the end-to-end tests checkpoint, kill and
// restart: small deterministic message-passing programs of several shapes,
// whose result file is the same bytes however often they were interrupted.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// run is one rank of the program.
type run struct {
	world *mpiwrap.Comm
	ck    *coordinated.Checkpointer
	steps int
	step  int
	size  int       // elements per rank
	field []float64 // the state that the shapes compute on
	sum   []float64 // results of reductions, one per step that has one
	pace  time.Duration
	hold  string // file that must exist for the program to go beyond half its steps
}

func main() {
	err := program()
	switch {
	case errors.Is(err, coordinated.ErrStop):
		os.Exit(3)
	case err != nil:
		fmt.Fprintln(os.Stderr, "testprog:", err)
		os.Exit(1)
	}
}

func program() error {
	shape := flag.String("shape", "stencil", "stencil, apart, broadcast, grid, large or stuck")
	steps := flag.Int("steps", 1000, "iterations")
	size := flag.Int("size", 512, "elements of float64 per rank")
	result := flag.String("result", "", "file that rank 0 writes the result's hash to")
	pids := flag.String("pids", "", "directory for a file with the process number of each rank")
	pace := flag.Duration("pace", 0, "computing time per iteration, beyond the arithmetic")
	closes := flag.Bool("closes", false, "call Close, not Abort, after a Restore that failed, as a program with defer does")
	hold := flag.String("hold", "", "stay at half the steps, passing Points, until this file exists")
	limit := flag.Duration("finalize", 0, "limit of MPI_Finalize; 0 = the library's")
	flag.Parse()
	body, ok := shapes[*shape]
	if !ok {
		return fmt.Errorf("unknown shape %q", *shape)
	}
	world, err := mpiwrap.Init(mpiwrap.Options{FinalizeTimeout: *limit})
	if err != nil {
		return err
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	ctx := context.Background()
	ck, err := coordinated.Open(ctx, world, coordinated.FromEnv())
	if err != nil {
		return err
	}
	r := &run{world: world, ck: ck, steps: *steps, size: *size, pace: *pace, hold: *hold}
	err = r.main(ctx, body, *pids)
	var unrestored *restoreError
	if *closes && errors.As(err, &unrestored) {
		return errors.Join(err, ck.Close(), mpiwrap.Finalize())
	}
	if err != nil && !errors.Is(err, coordinated.ErrStop) {
		ck.Abort(err)
		return err
	}
	stopped := err
	if stopped == nil {
		err = r.write(*result)
	}
	return errors.Join(stopped, ck.Close(), err, mpiwrap.Finalize())
}

func (r *run) main(ctx context.Context, body func(*run, context.Context) error, pids string) error {
	r.field = make([]float64, r.size)
	for i := range r.field {
		r.field[i] = math.Sin(float64(r.world.Rank()*r.size + i))
	}
	for name, x := range map[string]any{"step": &r.step, "field": &r.field, "sum": &r.sum} {
		if err := r.ck.Protect(name, x); err != nil {
			return err
		}
	}
	restored, err := r.ck.Restore(ctx)
	if err != nil {
		return &restoreError{err}
	}
	fmt.Fprintf(os.Stderr, "rank %d restored=%t step=%d\n", r.world.Rank(), restored, r.step)
	if pids != "" {
		name := filepath.Join(pids, fmt.Sprint(r.world.Rank()))
		if err := os.WriteFile(name+".tmp", fmt.Append(nil, os.Getpid()), 0o644); err != nil {
			return err
		}
		if err := os.Rename(name+".tmp", name); err != nil {
			return err
		}
	}
	return body(r, ctx)
}

// restoreError is a Restore that failed.
type restoreError struct{ error }

// point is Point, again and again while the program is to be held.
func (r *run) point(ctx context.Context) error {
	for {
		if err := r.ck.Point(ctx); err != nil || r.hold == "" || r.step != r.steps/2 {
			return err
		}
		if _, err := os.Stat(r.hold); err == nil {
			return nil
		}
		time.Sleep(time.Millisecond) // the pace of looking for a file
	}
}

// compute burns the pace, so that a run lasts long enough to be disturbed.
func (r *run) compute() {
	for start := time.Now(); time.Since(start) < r.pace; {
		for i := range r.field {
			_ = math.Sqrt(r.field[i] * r.field[i])
		}
	}
}

// write gathers a hash of everything at rank 0.
func (r *run) write(file string) error {
	h := sha256.New()
	for _, s := range [][]float64{r.field, r.sum} {
		for _, x := range s {
			h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(x)))
		}
	}
	mine := h.Sum(nil)
	all := make([]byte, len(mine)*r.world.Size())
	if err := mpiwrap.Gather(r.world, all, mine, 0); err != nil {
		return err
	}
	if r.world.Rank() != 0 || file == "" {
		return nil
	}
	return os.WriteFile(file, fmt.Appendf(nil, "%x\n", sha256.Sum256(all)), 0o644)
}
