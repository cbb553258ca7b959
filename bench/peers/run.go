package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/bench/storage"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// Options shape a run.
type Options struct {
	Dir   string // on the disk to measure
	MPI   string // of the libraries: mpirun.Pick
	Ranks int
	MiB   int
}

// jobLimit bounds a start: that a library hangs is a result.
const jobLimit = 3 * time.Minute

// suite is one run.
type suite struct {
	*bench.Runner
	Options
	dir string // own, below Options.Dir
}

// Run measures every peer that is installed, and the storage of Holdfast in the same way. For a
// peer that is missing or fails there is a row with the reason.
func Run(ctx context.Context, r *bench.Runner, o Options) (err error) {
	r.Start("peers", 2+len(libraries))
	if o.MPI != "" { // else each library takes the installed one
		if _, err := mpirun.Pick(o.MPI); err != nil {
			return err
		}
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	if dir, err = os.MkdirTemp(dir, "holdfast-peers"); err != nil {
		return err
	}
	s := &suite{Runner: r, Options: o, dir: dir}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s.Step("Holdfast")
	if err := s.holdfast(ctx); err != nil {
		return err
	}
	for _, l := range libraries {
		s.Step("%s", l.name)
		if err := s.library(ctx, l); err != nil {
			s.Skip(l.name, "all", err)
		}
	}
	s.Step("DMTCP")
	if err := s.dmtcp(ctx); err != nil {
		s.Skip("DMTCP", "all", err)
	}
	return ctx.Err()
}

// The metrics that all peers have.
const (
	waits   = "program waits / raw write+fsync"
	durable = "durable / raw write+fsync"
	restart = "restore / raw read, warm"
)

// holdfast takes the figures of Holdfast from its own suite, with the same sizes.
func (s *suite) holdfast(ctx context.Context) error {
	own := &bench.Runner{Self: s.Self, Runs: s.Runs}
	if err := storage.Run(ctx, own, storage.Options{Dir: s.dir, Ranks: []int{s.Ranks}, MiB: []int{s.MiB}}); err != nil {
		return err
	}
	var raw *float64
	for _, row := range own.Rows {
		if strings.HasPrefix(row.Metric, "durable local / raw") {
			raw = row.Baseline
		}
	}
	for _, row := range own.Rows {
		switch {
		case strings.HasPrefix(row.Metric, "blocking / memcpy") && raw != nil:
			row.Metric = waits
			if row.Skipped == "" {
				ratio := row.Value / *raw
				row.Baseline, row.Ratio = raw, &ratio
			}
		case strings.HasPrefix(row.Metric, "durable local / raw"):
			row.Metric = durable
		case strings.HasPrefix(row.Metric, "restore local / raw"):
			row.Metric = restart
		default:
			continue
		}
		row.Case, row.Goal, row.Met = s.caseName("Holdfast, local"), nil, nil
		s.Add(row)
	}
	return nil
}

func (s *suite) caseName(peer string) string {
	return fmt.Sprintf("%s, %d x %d MiB", peer, s.Ranks, s.MiB)
}

// A driver's output, in seconds.
const (
	rawWrite = "raw"
	rawRead  = "rawread"
	waited   = "waits"
	safe     = "durable"
	back     = "restart" // only if every byte is unchanged
)

// library builds the driver against an installation and runs it twice: checkpoints,
// and a restart.
func (s *suite) library(ctx context.Context, l library) error {
	home, err := l.find()
	if err != nil {
		return err
	}
	launcher, err := mpirun.Pick(s.MPI)
	if err != nil {
		return err
	}
	dir := filepath.Join(s.dir, l.link)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	program, err := l.build(ctx, launcher, home, dir)
	if err != nil {
		return err
	}
	arg, env, err := l.config(dir)
	if err != nil {
		return err
	}
	start := func(mode string, want ...string) (bench.Figures, error) {
		job := launcher.Job(s.Ranks, jobLimit, program, mode, dir, fmt.Sprint(int64(s.MiB)<<20), fmt.Sprint(s.Runs),
			arg)
		job.Env = append(env, l.libraryPath(home))
		return bench.Measure(ctx, job, want...)
	}
	w, err := start("write", rawWrite, rawRead, waited, safe)
	if err != nil {
		return err
	}
	row := func(metric string) bench.Row { return bench.Row{Case: s.caseName(l.name), Metric: metric, Unit: "s"} }
	s.Add(row(waits).Of(w.Set[waited], w.Set[rawWrite], nil),
		row(durable).Of(w.Set[safe], w.Set[rawWrite], nil))
	again, err := start("restart")
	if err == nil && len(again.Set[back]) == 0 {
		err = errors.New("the restored bytes differ from those written")
	}
	if err != nil {
		s.Skip(s.caseName(l.name), restart, err)
		return nil
	}
	s.Add(row(restart).Of(again.Set[back], w.Set[rawRead], nil))
	return nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// VeloC measures only VeloC's own library, or records why it cannot: it is not installed, or the found library is the
// drop-in of Holdfast.
func VeloC(ctx context.Context, r *bench.Runner, o Options) error {
	s := &suite{Runner: r, Options: o, dir: o.Dir}
	veloc := libraries[0]
	if err := s.library(ctx, veloc); err != nil {
		s.Skip(s.caseName(veloc.name), "all", err)
	}
	return ctx.Err()
}
