// Package mpi measures what messages through mpiwrap cost beside a C program
// that makes the same calls, compiled when the benchmark runs with the same MPI.
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
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/bench"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

//go:embed twin/twin.c
var twin []byte

// Options shape a run.
type Options struct {
	Self []string     // command that runs Worker
	Env  []string     // added to the environment of Self
	Runs int          // of each program under each MPI
	Note func(string) // hears of progress; may be nil
}

// goals of what has no ratio.
const (
	goalAdded   = 60   // ns a message
	goalArmed   = 20   // ns a call
	goalMallocs = 0.01 // per call: the Go runtime itself makes some now and then
)

// Run measures under every MPI that is installed. The two programs take turns,
// so that what disturbs one disturbs the other, and a figure is that of the best
// round of all runs: what disturbs a message can only make it slower. The spread
// is that of the runs' best rounds.
func Run(ctx context.Context, o Options) ([]bench.Line, error) {
	if o.Runs < 1 {
		return nil, fmt.Errorf("%d runs; at least 1 is needed", o.Runs)
	}
	dir, err := os.MkdirTemp("", "holdfast-mpi")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var lines []bench.Line
	var failed error
	for _, l := range mpirun.Launchers() {
		if err := available(l); err != nil {
			lines = append(lines, bench.Skip(bench.Line{Suite: "mpi", Case: l.Title, Metric: "messages"}, err))
			continue
		}
		m := measurement{o: o, launcher: l, twin: filepath.Join(dir, l.Name), c: values{}, g: values{}}
		if err := m.run(ctx, dir); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", l.Title, err))
			if ctx.Err() != nil {
				break
			}
			continue // the other MPI may work
		}
		lines = append(lines, m.lines()...)
	}
	return lines, failed
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

// values are the seconds of each case, one per run.
type values map[string]bench.Samples

// measurement is all runs under one MPI.
type measurement struct {
	o        Options
	launcher mpirun.Launcher
	twin     string // the C program
	c, g     values
}

func (m *measurement) run(ctx context.Context, dir string) error {
	source := filepath.Join(dir, "twin.c")
	if err := os.WriteFile(source, twin, 0o644); err != nil {
		return err
	}
	if text, err := exec.CommandContext(ctx, m.launcher.Compiler(), "-O2", "-o", m.twin, source).CombinedOutput(); err != nil {
		return fmt.Errorf("compile the C program: %w\n%s", err, text)
	}
	for i := range m.o.Runs {
		if m.o.Note != nil {
			m.o.Note(fmt.Sprintf("messages under %s, run %d of %d", m.launcher.Title, i+1, m.o.Runs))
		}
		if err := m.add(ctx, m.c, mpirun.Job{Program: m.twin}); err != nil {
			return err
		}
		if err := m.add(ctx, m.g, mpirun.Job{Program: m.o.Self[0], Args: m.o.Self[1:], Env: m.o.Env}); err != nil {
			return err
		}
	}
	return nil
}

// add runs a program on two ranks and adds what it prints.
func (m *measurement) add(ctx context.Context, v values, j mpirun.Job) error {
	j.Ranks, j.Timeout = 2, 2*time.Minute
	out, err := m.launcher.Run(ctx, j)
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", j.Program, err, out)
	}
	for line := range strings.Lines(out) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "\t")
		seconds, err := strconv.ParseFloat(value, 64)
		if ok && err == nil {
			v[name] = append(v[name], seconds)
		}
	}
	for _, c := range cases {
		if len(v[c.name]) == 0 {
			return fmt.Errorf("%s printed nothing for %q:\n%s", j.Program, c.name, out)
		}
	}
	return nil
}

func (m *measurement) lines() []bench.Line {
	var out []bench.Line
	line := func(name, metric, unit string) bench.Line {
		return bench.Line{Suite: "mpi", Case: name + ", " + m.launcher.Title, Metric: metric, Unit: unit}
	}
	for _, c := range cases {
		l := bench.Against(line(c.name, c.metric, "ns"), best(m.g[c.name]), best(m.c[c.name]), c.goal)
		l.Runs, l.Spread = len(m.g[c.name]), m.g[c.name].Spread()
		out = append(out, l)
	}
	short := m.g[cases[0].name]
	alone := func(metric string, v, than bench.Samples, goal float64) bench.Line {
		l := bench.Alone(line(cases[0].name, metric, "ns"), bench.Samples{best(v)[0] - best(than)[0]}, goal)
		l.Runs = len(v)
		return l
	}
	return append(out,
		alone("added to C's", short, m.c[cases[0].name], goalAdded),
		alone("added by arming", m.g[armedName], short, goalArmed),
		bench.Alone(line("blocking calls", "mallocs a call", ""), m.g[mallocName], goalMallocs))
}

// best is the smallest of the seconds, in nanoseconds.
func best(seconds bench.Samples) bench.Samples { return bench.Samples{1e9 * slices.Min(seconds)} }
