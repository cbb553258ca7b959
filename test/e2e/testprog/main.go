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
	_ "github.com/holdfast-hpc/holdfast/storage/parity"
)

// run is one rank of the program.
type run struct {
	shape  shape
	world  *mpiwrap.Comm
	ck     *coordinated.Checkpointer // nil: no checkpoints
	steps  int
	step   int
	phase  int       // where in a step it is, for shapes with several Points in one
	size   int       // elements per rank
	field  []float64 // the state that the shapes compute on
	sum    []float64 // results of reductions, one per step that has one
	pace   time.Duration
	hold   string // file that must exist for the program to go beyond half its steps
	points int    // passed so far
	asks   func() // called before each Point; may be nil

	counter *mpiwrap.Win[int64] // of tickets
	post    post                // of mail
	early   *mpiwrap.Comm       // of groups, made before Restore
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
	name := flag.String("shape", "stencil", shapeNames())
	steps := flag.Int("steps", 1000, "iterations")
	size := flag.Int("size", 512, "elements of float64 per rank")
	result := flag.String("result", "", "file that rank 0 writes the result's hash to")
	pids := flag.String("pids", "", "directory for a file with the process number of each rank")
	pace := flag.Duration("pace", 0, "computing time per iteration, beyond the arithmetic")
	closes := flag.Bool("closes", false, "call Close, not Abort, after a Restore that failed, as a program with "+
		"defer does")
	hold := flag.String("hold", "", "stay at half the steps, passing Points, until this file exists")
	limit := flag.Duration("finalize", 0, "limit of MPI_Finalize; 0 = the library's")
	var s soak
	s.flags()
	flag.Parse()
	kind, ok := shapes[*name]
	if !ok {
		return fmt.Errorf("unknown shape %q", *name)
	}
	world, err := mpiwrap.Init(mpiwrap.Options{FinalizeTimeout: *limit})
	if err != nil {
		return err
	}
	if s.moments > 0 {
		return s.run(world)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	ctx := context.Background()
	ck, err := coordinated.Open(ctx, world, coordinated.FromEnv())
	if err != nil {
		return err
	}
	r := &run{shape: kind, world: world, ck: ck, steps: *steps, size: *size, pace: *pace, hold: *hold}
	err = r.main(ctx, *pids)
	var unrestored *restoreError
	if *closes && errors.As(err, &unrestored) {
		return errors.Join(err, ck.Close(), mpiwrap.Finalize())
	}
	if err != nil && !errors.Is(err, coordinated.ErrStop) {
		ck.Abort(err)
		return err
	}
	stopped := err
	if stopped == nil && !kind.closesFirst {
		err = r.write(*result)
	}
	err = errors.Join(stopped, ck.Close(), err)
	if stopped == nil && kind.closesFirst {
		err = errors.Join(err, r.write(*result))
	}
	return errors.Join(err, mpiwrap.Finalize())
}

func (r *run) main(ctx context.Context, pids string) error {
	restored, err := r.restore(ctx)
	if err != nil {
		return err
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
	return r.shape.body(r, ctx)
}

// restore makes and protects everything, and restores it.
func (r *run) restore(ctx context.Context) (bool, error) {
	r.field = make([]float64, r.size)
	for i := range r.field {
		r.field[i] = math.Sin(float64(r.world.Rank()*r.size + i))
	}
	for name, x := range map[string]any{"step": &r.step, "phase": &r.phase, "field": &r.field, "sum": &r.sum} {
		if err := r.protect(name, x); err != nil {
			return false, err
		}
	}
	if r.shape.setup != nil {
		if err := r.shape.setup(r); err != nil {
			return false, err
		}
	}
	if r.ck == nil {
		return false, nil
	}
	restored, err := r.ck.Restore(ctx)
	if err != nil {
		return false, &restoreError{err}
	}
	return restored, nil
}

// protect is Protect, where there are checkpoints.
func (r *run) protect(name string, x any) error {
	if r.ck == nil {
		return nil
	}
	return r.ck.Protect(name, x)
}

// restoreError is a Restore that failed.
type restoreError struct{ error }

// point is Point, again and again while the program is to be held.
func (r *run) point(ctx context.Context) error {
	r.points++
	if r.asks != nil {
		r.asks()
	}
	for r.ck != nil {
		if err := r.ck.Point(ctx); err != nil || r.hold == "" || r.step != r.steps/2 {
			return err
		}
		if _, err := os.Stat(r.hold); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond) // the pace of looking for a file; dozens of ranks do so on two cores
	}
	return nil
}

// compute takes as long as the pace, so that a run lasts long enough to be disturbed. A short one is spent computing;
// in a long one the rank sleeps, as one does whose GPU computes.
func (r *run) compute() {
	if r.pace >= time.Millisecond {
		time.Sleep(r.pace)
		return
	}
	for start := time.Now(); time.Since(start) < r.pace; {
		for i := range r.field {
			_ = math.Sqrt(r.field[i] * r.field[i])
		}
	}
}

// hash gathers a hash of everything at rank 0 of comm; elsewhere it is "".
func (r *run) hash(comm *mpiwrap.Comm) (string, error) {
	h := sha256.New()
	for _, s := range [][]float64{r.field, r.sum} {
		for _, x := range s {
			h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(x)))
		}
	}
	mine := h.Sum(nil)
	all := make([]byte, len(mine)*comm.Size())
	if err := mpiwrap.Gather(comm, all, mine, 0); err != nil || comm.Rank() != 0 {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(all)), nil
}

// write has rank 0 write the result.
func (r *run) write(file string) error {
	h, err := r.hash(r.world)
	if err != nil || h == "" || file == "" {
		return err
	}
	return os.WriteFile(file, []byte(h+"\n"), 0o644)
}
