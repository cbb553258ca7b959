package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/bench"
	"github.com/holdfast-hpc/holdfast/internal/bench/storage"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// Options shape a run.
type Options struct {
	Self  []string // command that is a worker of storagebench
	Dir   string   // on the disk to measure
	MPI   string   // of the libraries: mpirun.Pick
	Ranks int
	MiB   int
	Runs  int
	Note  func(string)
}

// jobTimeout bounds a start: a library that hangs is a result, too.
const jobTimeout = 3 * time.Minute

// runner is one run.
type runner struct {
	Options
	dir   string // own, below Options.Dir
	lines []bench.Line
}

// Run measures every peer that is installed, and Holdfast's storage in the same
// way. A peer that is not there, or fails, is a line that says why.
func Run(ctx context.Context, o Options) (lines []bench.Line, err error) {
	if o.MPI != "" { // else each library takes what is installed
		if _, err := mpirun.Pick(o.MPI); err != nil {
			return nil, err
		}
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	if dir, err = os.MkdirTemp(dir, "holdfast-peers"); err != nil {
		return nil, err
	}
	r := &runner{Options: o, dir: dir}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r.note("Holdfast")
	if err := r.holdfast(ctx); err != nil {
		return r.lines, err
	}
	for _, l := range libraries {
		if err := r.library(ctx, l); err != nil {
			r.skip(l.name, err)
		}
	}
	if err := r.dmtcp(ctx); err != nil {
		r.skip("DMTCP", err)
	}
	return r.lines, ctx.Err()
}

func (r *runner) note(s string) {
	if r.Note != nil {
		r.Note(s)
	}
}

func (r *runner) line(peer, metric string) bench.Line {
	return bench.Line{Suite: "peers", Case: peer, Metric: metric, Unit: "s"}
}

func (r *runner) skip(peer string, why error) {
	r.lines = append(r.lines, bench.Skip(r.line(peer, "all"), why))
}

// The metrics that all peers have.
const (
	waits   = "program waits / raw write+fsync"
	durable = "durable / raw write+fsync"
	restart = "restore / raw read, warm"
)

// holdfast takes Holdfast's figures from its own suite, with the same sizes.
func (r *runner) holdfast(ctx context.Context) error {
	lines, err := storage.Run(ctx, storage.Options{Self: r.Self, Dir: r.dir,
		Ranks: []int{r.Ranks}, MiB: []int{r.MiB}, Runs: r.Runs})
	if err != nil {
		return err
	}
	raw := 0.0
	for _, l := range lines {
		if strings.HasPrefix(l.Metric, "durable local / raw") && l.Baseline != nil {
			raw = *l.Baseline
		}
	}
	for _, l := range lines {
		metric := ""
		switch {
		case strings.HasPrefix(l.Metric, "blocking / memcpy") && raw > 0:
			metric = waits
			ratio := l.Value / raw
			l.Baseline, l.Ratio = &raw, &ratio
		case strings.HasPrefix(l.Metric, "durable local / raw"):
			metric = durable
		case strings.HasPrefix(l.Metric, "restore local / raw"):
			metric = restart
		default:
			continue
		}
		l.Suite, l.Case, l.Metric, l.Goal, l.Met = "peers", r.caseName("Holdfast, local"), metric, nil, nil
		r.lines = append(r.lines, l)
	}
	return nil
}

func (r *runner) caseName(peer string) string {
	return fmt.Sprintf("%s, %d x %d MiB", peer, r.Ranks, r.MiB)
}

// result is what a driver prints.
type result struct {
	Raw, Rawread, Waits, Durable, Restart bench.Samples
	Same                                  bool
}

// library builds the driver against an installation and runs it twice: checkpoints,
// and a restart.
func (r *runner) library(ctx context.Context, l library) error {
	home, err := l.find()
	if err != nil {
		return err
	}
	r.note(l.name + " in " + home)
	launcher, err := mpirun.Pick(r.MPI)
	if err != nil {
		return err
	}
	dir := filepath.Join(r.dir, l.link)
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
	start := func(mode string) (*result, error) {
		command := []string{program, mode, dir, fmt.Sprint(int64(r.MiB) << 20), fmt.Sprint(r.Runs), arg}
		return launch(ctx, append(env, l.libraryPath(home)), launcher.Command(nil, mpirun.Part{Ranks: r.Ranks, Command: command}))
	}
	w, err := start("write")
	if err != nil {
		return err
	}
	name := r.caseName(l.name)
	r.lines = append(r.lines, bench.Against(r.line(name, waits), w.Waits, w.Raw, 0),
		bench.Against(r.line(name, durable), w.Durable, w.Raw, 0))
	back, err := start("restart")
	if err == nil && !back.Same {
		err = errors.New("it restored other bytes than were written")
	}
	if err != nil {
		r.lines = append(r.lines, bench.Skip(r.line(name, restart), err))
		return nil
	}
	r.lines = append(r.lines, bench.Against(r.line(name, restart), back.Restart, w.Rawread, 0))
	return nil
}

// launch runs a driver on all ranks.
func launch(ctx context.Context, env, line []string) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = mpirun.Environ(env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("no end after %v", jobTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, firstLine(text.String()))
	}
	return parse(out.String())
}

// parse finds the driver's object among what a library prints.
func parse(out string) (*result, error) {
	for l := range strings.Lines(out) {
		if i := strings.Index(l, `{"`); i >= 0 {
			var res result
			if err := json.Unmarshal([]byte(l[i:]), &res); err == nil {
				return &res, nil
			}
		}
	}
	return nil, fmt.Errorf("the driver printed no result: %q", firstLine(out))
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
