// Demo shows one N-body run that is asked for a checkpoint, killed, and continues
// under another MPI, with its ranks on other directories, and on another OpenCL
// platform. It compares the results with an undisturbed run and exits
// with 1 if one is not what it should be. make demo builds and starts it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/test/launch"
)

func main() {
	d := demo{ranks: 4}
	flag.StringVar(&d.bin, "bin", "bin", "`directory` with the program nbody")
	flag.StringVar(&d.dir, "dir", "holdfast-demo", "`directory` to work in; what is in it is removed first")
	flag.IntVar(&d.bodies, "bodies", 4096, "number of bodies")
	flag.IntVar(&d.steps, "steps", 60, "number of time steps")
	flag.DurationVar(&d.timeout, "timeout", 2*time.Minute, "time limit for each of the four starts")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := d.run(ctx)
	launch.EndAll()
	if err == nil {
		stop()
		return
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("interrupted; nothing is left running")
	}
	stop()
	fmt.Fprintln(os.Stderr, "demo:", err)
	os.Exit(1)
}

// A demo is one run through all stages.
type demo struct {
	bin, dir             string
	ranks, bodies, steps int
	timeout              time.Duration
	began                time.Time
	epoch                storage.Epoch // the one that is restored
}

const (
	timeStep  = 0.001
	softening = 0.05
)

// run goes through the stages. The first that is not as it should be ends it.
func (d *demo) run(ctx context.Context) error {
	if err := d.prepare(); err != nil {
		return err
	}
	d.say("1. %d bodies, %d steps, %d ranks under Open MPI on PoCL, undisturbed", d.bodies, d.steps, d.ranks)
	if err := d.undisturbed(ctx); err != nil {
		return err
	}
	d.say("2. the same run with checkpoints")
	killed, err := d.killedRun(ctx)
	if err != nil {
		return err
	}
	d.say("3. restart under MPICH on PoCL, ranks in reversed order: no rank finds its own local directory")
	moved, err := d.restart(ctx, "mpich", launch.MPICH, "pocl")
	if err != nil {
		return err
	}
	moved.verdict, moved.err = "same bytes", sameBytes(d.path("undisturbed.csv"), d.path("mpich.csv"))
	d.say("4. restart of the same epoch under Open MPI on rusticl")
	other, err := d.restart(ctx, "rusticl", launch.OpenMPI, "rusticl")
	if err != nil {
		return err
	}
	other.verdict, other.err = d.withinTolerance("undisturbed.csv", "rusticl.csv", other.fromStep)
	return d.report(killed, moved, other)
}

// prepare makes an empty directory and absolute paths.
func (d *demo) prepare() (err error) {
	d.began = time.Now()
	if err := launch.Adopt(); err != nil {
		return err
	}
	if d.bin, err = filepath.Abs(d.bin); err != nil {
		return err
	}
	if d.dir, err = filepath.Abs(d.dir); err != nil {
		return err
	}
	if err := d.clear(); err != nil {
		return err
	}
	for _, sub := range append(d.locals(), d.path("global")) {
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// clear removes what an earlier demo left. It refuses a directory that is not one
// of a demo.
func (d *demo) clear() error {
	marker := d.path(".demo")
	entries, err := os.ReadDir(d.dir)
	if err == nil && len(entries) > 0 {
		if _, err := os.Stat(marker); err != nil {
			return fmt.Errorf("%s is not empty and not of an earlier demo; give another -dir", d.dir)
		}
		if err := os.RemoveAll(d.dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(marker, nil, 0o644)
}

func (d *demo) path(name string) string { return filepath.Join(d.dir, name) }

// locals returns the directories that stand for the nodes' own disks.
func (d *demo) locals() []string {
	dirs := make([]string, d.ranks)
	for i := range dirs {
		dirs[i] = d.path(fmt.Sprintf("node%d", i))
	}
	return dirs
}

// say prints a line with the time since the start.
func (d *demo) say(format string, args ...any) {
	fmt.Printf("%5.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}
