package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/holdfast-hpc/holdfast/apps/nbody/gravity"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/test/launch"
	"golang.org/x/sys/unix"
)

// A stage is what one start of the program has shown, a line of the report.
type stage struct {
	name     string
	fromStep int // the step a restart continued from
	stats    stats
	verdict  string
	err      error // why the verdict is bad
}

// job returns a start of the N-body program that writes its result to
// NAME.csv, without checkpoints.
func (d *demo) job(name string, m launch.MPI, device string) *launch.Job {
	return &launch.Job{
		Title: name, MPI: m, Ranks: d.ranks, Timeout: d.timeout,
		Program: filepath.Join(d.bin, "nbody"), Log: d.path(name + ".log"),
		Env: []string{"HOLDFAST_DEVICE=" + device},
		Args: []string{"-plummer", strconv.Itoa(d.bodies), "-steps", strconv.Itoa(d.steps),
			"-dt", fmt.Sprint(timeStep), "-eps", fmt.Sprint(softening),
			"-progress", "200ms", "-out", d.path(name + ".csv")},
	}
}

// withCheckpoints makes j write to and restore from the directories, one local
// directory for each rank.
func (d *demo) withCheckpoints(j *launch.Job, locals []string) *launch.Job {
	j.Locals = locals
	j.Args = append(j.Args, "-job", "demo", "-global", d.path("global"))
	return j
}

// step returns the step that the program has reached last, -1 before the first.
func step(r *launch.Running) int { return r.Output.LastNumber("nbody: step ") }

func (d *demo) undisturbed(ctx context.Context) error {
	r, err := d.job("undisturbed", launch.OpenMPI, "pocl").Start(ctx)
	if err != nil {
		return err
	}
	return r.Wait()
}

// killedRun starts the run with checkpoints, asks for one when a third is done,
// and kills a rank as soon as the checkpoint is committed in the global directory.
func (d *demo) killedRun(ctx context.Context) (*stage, error) {
	j := d.withCheckpoints(d.job("killed", launch.OpenMPI, "pocl"), d.locals())
	// On a fast machine the run would be over before the epoch is committed.
	j.Env = append(j.Env, "HOLDFAST_APPS_HOLD=1")
	r, err := j.Start(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.Until("a third of the steps", func() (bool, error) {
		return step(r) >= d.steps/3, nil
	}); err != nil {
		return nil, err
	}
	pids, err := r.RankPIDs()
	if err != nil {
		return nil, err
	}
	d.say("   step %d: USR1 to rank 2", step(r))
	if err := unix.Kill(pids[2], unix.SIGUSR1); err != nil {
		return nil, r.Fail(fmt.Errorf("send USR1 to rank 2: %w", err))
	}
	s := &stage{name: "checkpoint, then kill -9"}
	if err := r.Until("a committed epoch in the global directory", func() (bool, error) {
		epoch, err := d.committed(ctx)
		d.epoch = epoch
		return epoch > 0, err
	}); err != nil {
		return nil, err
	}
	if err := r.Until("the program's account of it", func() (bool, error) {
		s.stats.read(r.Output.String())
		return s.stats.durable != "", nil
	}); err != nil {
		return nil, err
	}
	d.say("   step %d: the epoch is committed; kill -9 of rank 1", step(r))
	if err := unix.Kill(pids[1], unix.SIGKILL); err != nil {
		return nil, r.Fail(fmt.Errorf("kill rank 1: %w", err))
	}
	return s, d.expectDeath(r, s)
}

// expectDeath waits for the end of a job that has lost a rank, and checks that
// it did not get through.
func (d *demo) expectDeath(r *launch.Running, s *stage) error {
	r.WaitKilled()
	launch.EndAll()
	if _, err := os.Stat(d.path("killed.csv")); err == nil {
		return r.Fail(errors.New("the run was over before it was killed"))
	}
	d.say("   dead at step %d of %d", step(r), d.steps)
	s.verdict = "killed as planned"
	return nil
}

// restart starts the program again with the local directories dealt out in reversed
// order.
func (d *demo) restart(ctx context.Context, name string, m launch.MPI, device string) (*stage, error) {
	locals := d.locals()
	slices.Reverse(locals)
	j := d.withCheckpoints(d.job(name, m, device), locals)
	j.Env = append(j.Env, fmt.Sprint("HOLDFAST_EPOCH=", d.epoch))
	r, err := j.Start(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.Wait(); err != nil {
		return nil, err
	}
	s := &stage{name: fmt.Sprintf("restart, %s, %s", m.Title, device),
		fromStep: r.Output.LastNumber("nbody: continues from step ")}
	s.stats.read(r.Output.String())
	if s.fromStep < 1 {
		return nil, r.Fail(fmt.Errorf("did not continue from a checkpoint"))
	}
	d.say("   continued from step %d to the end", s.fromStep)
	return s, nil
}

// committed returns the newest committed epoch in the global directory, 0 if there is none.
func (d *demo) committed(ctx context.Context) (storage.Epoch, error) {
	if empty, err := isEmpty(d.path("global")); err != nil || empty {
		return 0, err
	}
	v, err := checkpoints.Inspect(context.Background(), d.path("global"))
	if err != nil {
		return 0, err
	}
	epochs, err := v.Epochs(ctx)
	if err != nil {
		return 0, err
	}
	for _, e := range epochs { // newest first
		if e.Committed {
			return e.Epoch, nil
		}
	}
	return 0, nil
}

// withinTolerance compares a result on another device with the undisturbed one.
// From the epoch on both runs start from the same bits and differ only in how
// the devices round, so the bound is gravity.Divergence over the steps since.
// The positions it needs are those of the epoch; those at the end stand in for
// them, which it allows for, as the bodies move by a hundredth of the sphere's
// radius meanwhile.
func (d *demo) withinTolerance(want, got string, fromStep int) (string, error) {
	apart, err := farthest(d.path(want), d.path(got))
	if err != nil {
		return "not compared", err
	}
	end, err := readBodies(d.path(want))
	if err != nil {
		return "not compared", err
	}
	bound := gravity.Divergence(1, softening, end.Pos, d.steps-fromStep, timeStep)
	verdict := fmt.Sprintf("apart %.1e, bound %.1e", apart, bound)
	if apart > bound {
		return verdict, fmt.Errorf("%s and %s are farther apart than rounding explains", want, got)
	}
	return verdict, nil
}
