// Package mpi measures the cost of messages through mpiwrap against a C program with the same calls, compiled when the
// benchmark runs with the same MPI.
package mpi

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

//go:embed twin/twin.c
var twin []byte

// goals of rows without a ratio.
const (
	goalAdded   = bench.AtMost(60)   // ns a message
	goalArmed   = bench.AtMost(20)   // ns a call
	goalMallocs = bench.AtMost(0.13) // per call: one of the eight makes an array, and the Go runtime itself some
)

// Run measures under every MPI that is installed. The Go and the C program take turns, so that a
// disturbance affects both. A figure is the best round of all runs, because a disturbance can only
// make a message slower; the spread is that of the best rounds of the runs.
func Run(ctx context.Context, r *bench.Runner) error {
	r.Start("mpi", len(mpirun.Launchers())*r.Runs)
	dir, err := os.MkdirTemp("", "holdfast-mpi")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var failed error
	for _, l := range mpirun.Launchers() {
		if err := available(l); err != nil {
			r.Skip(l.Title, "messages", err)
			continue
		}
		m := measurement{Runner: r, launcher: l, c: bench.Set{}, g: bench.Set{}}
		if err := m.run(ctx, dir); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", l.Title, err))
			if ctx.Err() != nil {
				break
			}
			continue // the other MPI may work
		}
		r.Add(m.rows()...)
	}
	return failed
}

func available(l mpirun.Launcher) error {
	if err := l.Available(); err != nil {
		return err
	}
	if _, err := exec.LookPath(l.Compiler()); err != nil {
		return fmt.Errorf("no %s to compile the C program with (make setup installs it)", l.Compiler())
	}
	return nil
}

// measurement is all runs under one MPI.
type measurement struct {
	*bench.Runner
	launcher mpirun.Launcher
	c, g     bench.Set // seconds of each case, one per run
}

func (m *measurement) run(ctx context.Context, dir string) error {
	dir = filepath.Join(dir, m.launcher.Name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	program, err := bench.CompileC(ctx, dir, twin, []string{m.launcher.Compiler()})
	if err != nil {
		return fmt.Errorf("compile the C program: %w", err)
	}
	for i := range m.Runs {
		m.Step("messages under %s, run %d of %d", m.launcher.Title, i+1, m.Runs)
		if err := m.add(ctx, m.c, program); err != nil {
			return err
		}
		if err := m.add(ctx, m.g, m.Worker("mpi", nil)...); err != nil {
			return err
		}
	}
	return nil
}

// add runs a program on two ranks and adds its output.
func (m *measurement) add(ctx context.Context, to bench.Set, command ...string) error {
	var want []string
	for _, c := range cases {
		want = append(want, c.name)
	}
	f, err := bench.Measure(ctx, m.launcher.Job(2, 2*time.Minute, command...), want...)
	if err != nil {
		return fmt.Errorf("%s: %w", command[0], err)
	}
	to.Join(f.Set)
	return nil
}

// rows are of the best round of all runs, in nanoseconds.
func (m *measurement) rows() []bench.Row {
	var out []bench.Row
	row := func(name, metric, unit string) bench.Row {
		return bench.Row{Case: name + ", " + m.launcher.Title, Metric: metric, Unit: unit}
	}
	for _, c := range cases {
		out = append(out, row(c.name, c.metric, "ns").Fastest(m.g[c.name].Times(1e9), m.c[c.name].Times(1e9), c.goal))
	}
	short := m.g[cases[0].name]
	alone := func(metric string, v, than bench.Samples, goal bench.Goal) bench.Row {
		r := row(cases[0].name, metric, "ns").Of(bench.Samples{1e9 * (slices.Min(v) - slices.Min(than))}, nil, goal)
		r.Runs = len(v)
		return r
	}
	return append(out,
		alone("added to C's", short, m.c[cases[0].name], goalAdded),
		alone("added by arming", m.g[armedName], short, goalArmed),
		row("blocking calls", "mallocs a call", "").Of(m.g[mallocName], nil, goalMallocs))
}
