package apps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/bench"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// Options say what to measure.
type Options struct {
	BinDir  string   // where the applications are
	Self    []string // command that runs Raw, without its arguments
	Dir     string   // on the disk to measure; what is written there is removed
	Apps    []string // names; nil: all
	Device  string   // for all ranks; empty: the best there is
	MPI     string   // mpirun.Pick
	Ranks   int
	Runs    int
	Seconds float64 // of a run's steps, about
	Size    string  // "small", "big", or empty: big on a device with memory of its own
	Windows []int   // besides none
	MTBF    time.Duration
	Whole   bool // makes a run of one whole Daly interval, too
	// Cases are some of Cases; nil: all.
	Cases []string
	// Budget is how long all of it may take, about: rounds end early for it, and
	// applications are left out. Past twice as much it is an error. 0: no bound.
	Budget time.Duration
	// Bind says what the launcher binds ranks to, such as core or numa; empty: to
	// nothing.
	Bind string
	// Moves are places to restart at: "same", "swap" or a device. Where there are
	// some, nothing else is measured.
	Moves []string
	Note  func(string) // hears of progress; may be nil
}

// Cases are the parts of the suite.
var Cases = []string{caseArmed, caseWindows, caseCheckpoint, caseRestart}

const (
	caseArmed      = "armed"
	caseWindows    = "windows"
	caseCheckpoint = "checkpoint"
	caseRestart    = "restart"
)

// Goals of the ratios.
const (
	goalArmed   = 1.005
	goalDaly    = 1.01
	goalRestart = 1.3
)

// suite is one run of the benchmark.
type suite struct {
	o        Options
	big      bool
	dir      string           // own, below the options'
	launcher *mpirun.Launcher // nil: one rank without MPI
	begun    time.Time
}

// Run measures the applications.
func Run(ctx context.Context, o Options) (lines []bench.Line, err error) {
	s, err := prepare(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	if o.Budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, 2*o.Budget, fmt.Errorf("not over after twice the %v that it was given", o.Budget))
		defer cancel()
	}
	chosen := o.chosen()
	for i, a := range chosen {
		m := &measured{suite: s, app: a}
		if o.Budget > 0 && i > 0 && time.Since(s.begun) > o.Budget {
			lines = append(lines, bench.Skip(bench.Line{Suite: "apps", Case: m.caseName(), Metric: "all"},
				fmt.Errorf("the %v are over; give more --time", o.Budget)))
			continue
		}
		if o.Budget > 0 { // what is left, in equal parts
			m.until = time.Now().Add(time.Until(s.begun.Add(o.Budget)) / time.Duration(len(chosen)-i))
		}
		if len(o.Moves) > 0 {
			if err := m.moves(ctx); err != nil {
				return lines, err
			}
			lines = append(lines, m.moved...)
			continue
		}
		if err := m.all(ctx); err != nil {
			return lines, err
		}
		lines = append(lines, m.lines()...)
	}
	return lines, nil
}

// chosen are the applications to measure.
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

// prepare looks whether all that is needed is there.
func prepare(o Options) (*suite, error) {
	s := &suite{o: o, begun: time.Now()}
	for _, name := range o.Apps {
		if _, err := find(name); err != nil {
			return nil, err
		}
	}
	for _, name := range o.Cases {
		if !slices.Contains(Cases, name) {
			return nil, fmt.Errorf("no case is called %q; there are %v", name, Cases)
		}
	}
	for _, a := range o.chosen() {
		if _, err := os.Stat(filepath.Join(o.BinDir, a.name)); err != nil {
			return nil, fmt.Errorf("no application %s: %w; build them with 'make build' and give their folder with --bin-dir", a.name, err)
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

// isBig says which sizes suit the device.
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

// Steps is how many times Note is called, about.
func (o *Options) Steps() int {
	n := len(o.chosen())
	if len(o.Moves) > 0 {
		return n * (1 + len(o.Moves))
	}
	each := o.Runs + 2
	if o.Whole {
		each++
	}
	return n * each
}

func find(name string) (app, error) {
	for _, a := range apps {
		if a.name == name {
			return a, nil
		}
	}
	var names []string
	for _, a := range apps {
		names = append(names, a.name)
	}
	return app{}, fmt.Errorf("no application is called %q; there are %v", name, names)
}

func (s *suite) note(format string, args ...any) {
	if s.o.Note == nil {
		return
	}
	text := fmt.Sprintf(format, args...)
	if s.o.Budget > 0 {
		text += fmt.Sprintf(" (%v of %v)", time.Since(s.begun).Round(time.Second), s.o.Budget)
	}
	s.o.Note(text)
}

// rawBaselines measures the baselines for checkpoints of so many bytes a rank.
func (s *suite) rawBaselines(ctx context.Context, a app, bytes int64) (*rawTimes, error) {
	command := append(slices.Clone(s.o.Self), "--app", a.name, "--dir", s.dir, "--device", s.o.Device,
		"--bytes", fmt.Sprint(bytes), "--runs", fmt.Sprint(max(3, s.o.Runs)))
	out, err := s.launch(ctx, nil, command)
	if err != nil {
		return nil, err
	}
	var t rawTimes
	if err := json.Unmarshal([]byte(out), &t); err != nil {
		return nil, fmt.Errorf("output of the baselines: %w", err)
	}
	return &t, nil
}

// warm reads all files below the benchmark's folder, so that reading them again
// finds them in the page cache, as the baseline does.
func (s *suite) warm(folder string) error {
	return filepath.WalkDir(filepath.Join(s.dir, folder), func(name string, d fs.DirEntry, err error) error {
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
