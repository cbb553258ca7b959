// Package apps runs the applications and measures the library's cost: with it and without, with checkpoints, through a
// restart, and on another device than before.
package apps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// Options select the measurements.
type Options struct {
	BinDir  string   // directory of the applications
	Dir     string   // on the disk to measure; files written there are removed
	Apps    []string // names; nil: all
	Device  string   // for all ranks; empty: the best there is
	MPI     string   // mpirun.Pick
	Ranks   int
	Seconds float64 // of a run's steps, about
	Size    string  // "small", "big", or empty: big on a device with memory of its own
	MTBF    time.Duration
	// Cases are some of Cases; nil: all.
	Cases []string
	// Bind is the unit that the launcher binds ranks to, such as core or numa; empty: none.
	Bind string
	// Moves are places to restart at: "same", "swap" or a device. With some of them
	// nothing else is measured.
	Moves []string
}

// Cases are the parts of the suite.
var Cases = []string{caseArmed, caseCheckpoint, caseRestart}

const (
	caseArmed      = "armed"
	caseCheckpoint = "checkpoint"
	caseRestart    = "restart"
)

// Goals of the ratios.
const (
	goalArmed   = bench.AtMost(1.005)
	goalDaly    = bench.AtMost(1.01)
	goalRestart = bench.AtMost(1.3)
)

// suite is one run of the benchmark.
type suite struct {
	*bench.Runner
	o        Options
	big      bool
	dir      string           // own, below the options'
	launcher *mpirun.Launcher // nil: one rank without MPI
}

// Run measures the applications. As the budget of the runner runs out, it ends rounds early and
// skips applications; after twice the budget it returns an error.
func Run(ctx context.Context, r *bench.Runner, o Options) (err error) {
	s, err := prepare(o)
	if err != nil {
		return err
	}
	s.Runner = r
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	if r.Budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, 2*r.Budget,
			fmt.Errorf("not finished after twice the %v of --time", r.Budget))
		defer cancel()
	}
	chosen := o.chosen()
	r.Start("apps", len(chosen)*o.steps(r.Runs))
	for i, a := range chosen {
		m := &measured{suite: s, app: a, until: r.Until(len(chosen) - i)}
		if i > 0 && r.Late(m.caseName(), "all") {
			continue
		}
		measure := m.all
		if len(o.Moves) > 0 {
			measure = m.moves
		}
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// chosen returns the applications to measure.
func (o *Options) chosen() []app {
	if o.Apps == nil {
		return apps
	}
	var out []app
	for _, a := range apps {
		if slices.Contains(o.Apps, a.name) {
			out = append(out, a)
		}
	}
	return out
}

// prepare checks that everything that is needed exists.
func prepare(o Options) (*suite, error) {
	s := &suite{o: o}
	for _, name := range o.Apps {
		if _, err := find(name); err != nil {
			return nil, err
		}
	}
	for _, name := range o.Cases {
		if !slices.Contains(Cases, name) {
			return nil, fmt.Errorf("unknown case %q: want some of %s", name, strings.Join(Cases, ", "))
		}
	}
	for _, a := range o.chosen() {
		if _, err := os.Stat(filepath.Join(o.BinDir, a.name)); err != nil {
			return nil, fmt.Errorf("no application %s: %w; build them with 'make build' and give their directory with "+
				"--bin-dir", a.name, err)
		}
	}
	l, err := mpirun.Pick(o.MPI)
	switch {
	case err == nil:
		if o.Bind != "" {
			l = l.BoundTo(o.Bind)
		}
		s.launcher = &l
	case o.Ranks != 1 || o.MPI != "":
		return nil, err
	}
	if s.big, err = o.isBig(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	s.dir, err = os.MkdirTemp(dir, "holdfast-apps")
	return s, err
}

// isBig chooses the sizes that suit the device.
func (o *Options) isBig() (bool, error) {
	switch o.Size {
	case "small", "big":
		return o.Size == "big", nil
	case "":
	default:
		return false, fmt.Errorf("size %q: want small or big", o.Size)
	}
	sel := gpustate.SelectFromEnv()
	if o.Device != "" {
		var err error
		if sel, err = gpustate.ParseSelect(o.Device); err != nil {
			return false, err
		}
	}
	dev, err := gpustate.Open(sel)
	if err != nil {
		return false, err
	}
	return !dev.Info().HostMemory && dev.Info().Kind != "fake", dev.Close()
}

// steps returns the number of steps of an application.
func (o *Options) steps(runs int) int {
	if len(o.Moves) > 0 {
		return 1 + len(o.Moves)
	}
	return runs + 2
}

func find(name string) (app, error) {
	i := slices.Index(Names(), name)
	if i < 0 {
		return app{}, fmt.Errorf("unknown application %q: want some of %s", name, strings.Join(Names(), ", "))
	}
	return apps[i], nil
}

// Names returns the applications, in order.
func Names() []string {
	var names []string
	for _, a := range apps {
		names = append(names, a.name)
	}
	return names
}

// Arguments returns the flags that give an application so much work: 1 takes some tenths of a second on a CPU of two
// cores, or on a big GPU if big is set. They may write input to dir.
func Arguments(name string, work float64, big bool, dir string) ([]string, error) {
	a, err := find(name)
	if err != nil {
		return nil, err
	}
	return a.args(work, big, dir)
}

// ResultFile returns the name of an application's result file, with the suffix that it wants.
func ResultFile(name string) string {
	a, _ := find(name) // no name of an unknown one, which Arguments refuses
	return a.out
}

// rawBaselines measures the baselines for checkpoints of bytes a rank.
func (s *suite) rawBaselines(ctx context.Context, a app, bytes int64) (bench.Set, error) {
	worker := s.Worker("apps", Setup{App: a.name, Dir: s.dir, Device: s.o.Device, Bytes: bytes, Runs: max(3, s.Runs),
		MPI: s.launcher != nil})
	f, err := bench.Measure(ctx, jobOf(s.launcher, s.o.Ranks, s.dir, 0, nil, worker), rawWrite, rawRead, rawUpload,
		rawBuild)
	return f.Set, err
}

// warm reads all files of a directory into the page cache, where the baseline has its files, too.
func (s *suite) warm(directory string) error {
	return filepath.WalkDir(filepath.Join(s.dir, directory), func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(io.Discard, f)
		return err
	})
}
