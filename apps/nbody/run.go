package main

import (
	"context"
	"fmt"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/apps/nbody/bodies"
	"github.com/holdfast-hpc/holdfast/apps/nbody/kernel"
	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// A simulation is the state of one rank. Protected values are marked.
type simulation struct {
	*config
	*job.Job
	part    partition
	engine  *engine // its buffers are protected with the device
	initial *bodies.System

	step int64 // protected: steps done
}

// simulate is the program on one rank.
func (c *config) simulate(ctx context.Context, j *job.Job) error {
	initial, err := c.initial()
	if err != nil {
		return err
	}
	part := partition{initial.Len(), j.World.Size()}
	if part.bodies < part.ranks {
		return fmt.Errorf("%d bodies on %d ranks: want at least one body per rank", part.bodies, part.ranks)
	}
	e, err := newEngine(j.Device, c, part.size(j.World.Rank()), part.largest())
	if err != nil {
		return err
	}
	if c.snapshotEvery > 0 && j.World.Rank() == 0 {
		if err := job.CheckDir(c.snapshots); err != nil {
			return fmt.Errorf("snapshots: %w", err)
		}
	}
	s := &simulation{config: c, Job: j, part: part, engine: e, initial: initial}
	if err := s.start(ctx); err != nil {
		return err
	}
	return s.loop(ctx)
}

// start restores the state, or initialises it on a first start.
func (s *simulation) start(ctx context.Context) error {
	// The number of steps is not part of the run: it may be made longer.
	run := fmt.Sprintf("bodies %.16s dt %g eps %g", s.initial.Digest(), s.dt, s.eps)
	var arrays []job.Array
	for _, b := range []*gpustate.Buffer{s.engine.pos, s.engine.vel, s.engine.acc} {
		arrays = append(arrays, job.Array{Name: b.Name(), Memory: coordinated.InBuffer[[4]float32](b),
			Layout: coordinated.Block([]int{s.part.bodies}, []int{s.part.ranks}, s.World.Rank())})
	}
	restored, err := s.Restore(ctx, run, arrays, job.State{Name: "step", Value: &s.step})
	if err != nil {
		return err
	}
	e := s.engine
	// The restore builds the programs of the checkpoint while it reads the contents, so this comes after it.
	err = s.Device.Build("nbody", kernel.Sources, kernel.Options, map[string]**gpustate.Kernel{
		kernel.Accelerate: &e.accelerate, kernel.KickDrift: &e.kickDrift, kernel.Kick: &e.kick,
	})
	if err != nil {
		return err
	}
	if restored {
		if s.step > s.steps {
			return job.BeyondError("step", s.step, "-steps", s.steps)
		}
		s.Sayf("continues from step %d of %d", s.step, s.steps)
		return nil
	}
	lo, hi := s.part.block(s.World.Rank())
	if err := e.queue.Write(e.pos, 0, gpustate.Bytes(s.initial.Pos[4*lo:4*hi])); err != nil {
		return err
	}
	if err := e.queue.Write(e.vel, 0, gpustate.Bytes(s.initial.Vel[4*lo:4*hi])); err != nil {
		return err
	}
	return s.ring()
}

func (s *simulation) loop(ctx context.Context) error {
	shown := s.Progress(int(s.steps))
	for ; s.step < s.steps; s.step++ {
		if err := s.Checkpoints.Point(ctx); err != nil {
			return err
		}
		shown.Step(int(s.step))
		if s.snapshotDue() {
			if err := s.snapshot(); err != nil {
				return err
			}
		}
		if err := s.leapfrog(); err != nil {
			return err
		}
	}
	if err := s.engine.queue.Finish(); err != nil {
		return err
	}
	shown.Step(int(s.step))
	if err := s.Hold(ctx); err != nil {
		return err
	}
	if s.snapshotDue() { // the last step's, which has no step behind it
		if err := s.snapshot(); err != nil {
			return err
		}
	}
	return s.finish()
}

// leapfrog does one step: half a kick and the drift to the new positions, then, with the accelerations there, the
// other half. The kernels of its end still run when it returns.
func (s *simulation) leapfrog() error {
	e := s.engine
	if err := e.launch(e.kickDrift, e.pos, e.vel, e.acc, int32(e.n), e.dt/2, e.dt); err != nil {
		return err
	}
	if err := s.ring(); err != nil {
		return err
	}
	return e.launch(e.kick, e.vel, e.acc, int32(e.n), e.dt/2)
}
