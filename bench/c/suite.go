// Package c measures the cost of checkpoints for a program in C that calls libholdfast. The baseline is the time that
// the same program needs in the same run to copy the same bytes in memory and to write and fsync them. It also measures
// what libholdfast-mpi adds to calls of MPI.
package c

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/bench/peers"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// Options shape a run.
type Options struct {
	Dir string // on the disk to measure
	Lib string // directory of libholdfast.so; empty: beside the one of holdfast
	MPI string // of VeloC: mpirun.Pick
	MiB int    // of state
}

// The goals.
const (
	mostBlocked = bench.AtMost(1.3)
	mostDurable = bench.AtMost(1.15)
	mostPoint   = bench.AtMost(5) // ns
	mostRestart = bench.AtMost(1.5)
)

// Run measures one rank, calls of MPI, and VeloC's own library in the same way as one rank where it is installed.
// Without a library or a compiler there is a row with the reason.
func Run(ctx context.Context, r *bench.Runner, o Options) (err error) {
	if o.MiB < 1 {
		return fmt.Errorf("--mib %d: want 1 or more", o.MiB)
	}
	r.Start("c", 3+r.Runs+len(mpirun.Launchers()))
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	if dir, err = os.MkdirTemp(dir, "holdfast-c"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	name := fmt.Sprintf("C program, 1 x %d MiB", o.MiB)
	r.Step("%s: compile", name)
	program, err := build(ctx, o.Lib, dir)
	if err != nil {
		r.Skip(name, "all", err)
	} else if err := measure(ctx, r, job{name, program, dir, o.MiB}); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := messages(ctx, r, o.Lib, dir); err != nil {
		return err
	}
	r.Step("VeloC")
	return peers.VeloC(ctx, r, peers.Options{Dir: dir, MPI: o.MPI, Ranks: 1, MiB: o.MiB})
}

// measure has the program write, and restart as often as there are runs.
func measure(ctx context.Context, r *bench.Runner, j job) (err error) {
	d, err := startDaemon(ctx, j.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.end()) }()
	r.Step("%s: checkpoints", j.name)
	w, err := j.start(ctx, d, "write", r.Runs, memcpy, raw, blocked, durable, point)
	if err != nil {
		return err
	}
	row := func(metric, unit string) bench.Row { return bench.Row{Case: j.name, Metric: metric, Unit: unit} }
	r.Add(row("blocked / memcpy", "s").Of(w.Set[blocked], w.Set[memcpy], mostBlocked),
		row("durable local / raw write+fsync", "s").Of(w.Set[durable], w.Set[raw], mostDurable),
		row("hf_point with nothing asked", "ns").Of(w.Set[point].Times(1e9), nil, mostPoint))
	took := bench.Set{}
	for run := range r.Runs + 1 { // the first warms up
		r.Step("%s: restart %d", j.name, run+1)
		one, err := j.start(ctx, d, "restart", 1)
		if err != nil {
			return err
		}
		if len(one.Set[restored]) == 0 {
			return errors.New("the restored bytes differ from those of the checkpoint")
		}
		if run > 0 {
			took.Join(one.Set)
		}
	}
	if n := d.fromMemory(); n != r.Runs+1 {
		return fmt.Errorf("%d of %d restarts read the daemon's memory, the others a disk:\n%s", n, r.Runs+1,
			d.Said())
	}
	r.Add(row("restart from the daemon's memory / memcpy", "s").Of(took[restored], took[memcpy], mostRestart))
	return nil
}
