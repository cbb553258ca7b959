package job

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// A Job is one rank of a running application.
type Job struct {
	Name        string
	World       *mpiwrap.Comm
	Device      *Device
	Checkpoints *Checkpoints
	options     *Options
	times       Times
}

// A Body is the part of an application that differs from the others. It protects and restores its
// state, computes, and returns coordinated.ErrStop when a Point did.
type Body func(context.Context, *Job) error

// Run initialises MPI and runs body on this rank.
func (o *Options) Run(ctx context.Context, name string, body Body) error {
	world, finalize, err := o.World()
	if err != nil {
		return err
	}
	err = o.On(ctx, name, world, body)
	stopped := errors.Is(err, coordinated.ErrStop)
	if stopped && world.Rank() == 0 {
		fmt.Fprintf(os.Stderr, "%s: stopped at a checkpoint; start the same command again to continue\n", name)
	}
	if err == nil || stopped {
		return errors.Join(err, finalize())
	}
	if world.Size() > 1 {
		// Others may wait for this rank in a collective, and not every launcher
		// ends them when one rank leaves.
		complain(name, err)
		world.Abort(1)
	}
	return err
}

// On runs body on a world that is there already.
func (o *Options) On(ctx context.Context, name string, world *mpiwrap.Comm, body Body) (err error) {
	for _, name := range []string{o.Out, o.Times} { // that could not be written at the end
		if name != "" && world.Rank() == 0 {
			if err := CheckFile(name); err != nil {
				return err
			}
		}
	}
	dev, err := o.OpenDevice(world)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	start := time.Now()
	ck, err := o.OpenCheckpoints(ctx, world)
	if err != nil {
		return err
	}
	j := &Job{Name: name, World: world, Device: dev, Checkpoints: ck, options: o}
	j.times.Open = time.Since(start).Seconds()
	defer func() { err = errors.Join(err, ck.end(err), j.writeTimes()) }()
	return body(ctx, j)
}

// writeTimes writes the file of -times at rank 0. It comes after the checkpoints are closed, so
// that the costs of all of them are known.
func (j *Job) writeTimes() error {
	if j.options.Times == "" || j.World.Rank() != 0 {
		return nil
	}
	t := &j.times
	t.Program, t.Ranks, t.Device = j.Name, j.World.Size(), j.Device.Info().Name
	t.Build = j.Device.built.Seconds()
	var stats coordinated.Stats
	if ck := j.Checkpoints.ck; ck != nil {
		stats = ck.Stats()
	}
	t.add(stats)
	return WriteFile(j.options.Times, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(t)
	})
}

// A State is one thing that an application protects, under its name.
type State struct {
	Name  string
	Value any
}

// An Array is this rank's share of an array of all ranks, in a buffer of the device; Memory is the result of
// coordinated.InBuffer.
type Array struct {
	Name   string
	Layout coordinated.Array
	Memory any
}

// Restore protects the device and the states, restores the newest checkpoint, and reports whether
// there was one. run identifies this run by its parameters; a checkpoint of a run with others is an
// error that shows both.
//
// With -elastic it protects the arrays in place of the device, and the states as replicated values: then any number of
// ranks restores them. Nothing else that is on the device is.
func (j *Job) Restore(ctx context.Context, run string, arrays []Array, states ...State) (bool, error) {
	if j.Checkpoints.ck == nil {
		return false, nil
	}
	name := &runName{now: run}
	if err := j.protect(name, arrays, states); err != nil {
		return false, err
	}
	restored, err := j.Checkpoints.ck.Restore(ctx)
	if name.saved != "" && name.saved != run {
		return false, &refusal{fmt.Errorf("the checkpoint is of another run: it has %q, this one %q; "+
			"give the same flags, another directory for checkpoints, or -fresh (%w)", name.saved, run, err)}
	}
	if err != nil {
		return restored, &refusal{err}
	}
	return restored, nil
}

func (j *Job) protect(name *runName, arrays []Array, states []State) error {
	ck := j.Checkpoints.ck
	protect := ck.Protect
	if j.Elastic() {
		protect = ck.ProtectReplicated
		for _, a := range arrays {
			if err := ck.ProtectGlobal(a.Name, a.Layout, a.Memory); err != nil {
				return err
			}
		}
	} else {
		states = append([]State{{"gpu", j.Device.Device}}, states...)
	}
	for _, s := range append([]State{{"run", name}}, states...) {
		if err := protect(s.Name, s.Value); err != nil {
			return err
		}
	}
	return nil
}

// Elastic reports whether any number of ranks may continue from the checkpoints.
func (j *Job) Elastic() bool { return j.options.Elastic }

// runName identifies the run that a checkpoint belongs to. It is restored first, so that a
// checkpoint of another run is refused before any state changes.
type runName struct{ now, saved string }

// MarshalBinary returns the name of this run.
func (r *runName) MarshalBinary() ([]byte, error) { return []byte(r.now), nil }

// StageBinary refuses a checkpoint of another run.
func (r *runName) StageBinary(b []byte) (apply func(), err error) {
	r.saved = string(b)
	if r.saved != r.now {
		return nil, &coordinated.MismatchError{Name: "run", Saved: fmt.Sprintf("%q", b),
			Now: fmt.Sprintf("has %q", r.now)}
	}
	return func() {}, nil
}

// UnmarshalBinary is StageBinary; there is nothing to put in force.
func (r *runName) UnmarshalBinary(b []byte) error {
	_, err := r.StageBinary(b)
	return err
}

// A refusal is an error that all ranks meet at the same place, such as a checkpoint of another run.
// No rank waits for another then, and the checkpoints stay as they were.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// BeyondError returns the error of a run whose checkpoint is already past its last step.
func BeyondError(what string, at int64, flag string, last int64) error {
	return &refusal{fmt.Errorf("the checkpoint is at %s %d, this run ends at %d: give %s %d or more, another "+
		"directory for checkpoints, or -fresh",
		what, at, last, flag, at)}
}

// HoldEnv is the environment variable that makes Hold wait. Tests that kill a run set it, so that
// the run does not end before they do, however fast the machine is.
const HoldEnv = "HOLDFAST_APPS_HOLD"

// Hold does nothing unless HoldEnv is set. Then it passes one Point after another until the process
// is killed, a Point returns an error, or the device is lost. An application calls it after its
// last step, when the other ranks need nothing more from this one.
func (j *Job) Hold(ctx context.Context) error {
	if os.Getenv(HoldEnv) == "" {
		return nil
	}
	q, err := j.Device.MainQueue()
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if err := errors.Join(j.Checkpoints.Point(ctx), q.Finish()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Progress returns the lines of a run of total steps. Only rank 0 prints any. Rank 0 also
// times the steps, so all commands on the device must be complete when the last step is reported.
func (j *Job) Progress(total int) *Progress {
	if j.World.Rank() != 0 {
		return nil
	}
	return &Progress{w: os.Stderr, name: j.Name, total: total, every: j.options.Progress, now: time.Now,
		times: &j.times}
}

// Sayf prints a line on standard error, on rank 0 only.
func (j *Job) Sayf(format string, args ...any) {
	if j.World.Rank() == 0 {
		fmt.Fprintf(os.Stderr, j.Name+": "+format+"\n", args...)
	}
}

// Exit ends the program: with 0 when err is nil, asked for help, or stopped at a
// checkpoint, and otherwise with 1 after printing err.
func Exit(name string, err error) {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp), errors.Is(err, coordinated.ErrStop):
		os.Exit(0)
	}
	complain(name, err)
	os.Exit(1)
}

func complain(name string, err error) { fmt.Fprintf(os.Stderr, "%s: %v\n", name, err) }
