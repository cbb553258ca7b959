package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/apps/nbody/bodies"
	"github.com/holdfast-hpc/holdfast/apps/nbody/gravity"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// collect returns all bodies as they are now, on every rank. It is collective, and
// an error if a number is not finite any more.
func (s *simulation) collect() (*bodies.System, error) {
	all := bodies.New(s.part.bodies)
	pos, vel := make([]float32, 4*s.part.largest()), make([]float32, 4*s.part.largest())
	own, e := 4*s.engine.n, s.engine
	if err := errors.Join(e.queue.Read(e.pos, 0, gpustate.Bytes(pos[:own])),
		e.queue.Read(e.vel, 0, gpustate.Bytes(vel[:own]))); err != nil {
		return nil, err
	}
	if err := s.gather(all.Pos, pos); err != nil {
		return nil, err
	}
	if err := s.gather(all.Vel, vel); err != nil {
		return nil, err
	}
	if i := all.NotFinite(); i >= 0 {
		return nil, fmt.Errorf("body %d left the range of single precision by step %d; use a smaller -dt, more -eps, "+
			"or other units", i+1, s.step)
	}
	return all, nil
}

// gather collects the ranks' blocks, padded to the largest, into all.
func (s *simulation) gather(all, mine []float32) error {
	padded := make([]float32, len(mine)*s.World.Size())
	if err := mpiwrap.Allgather(s.World, padded, mine); err != nil {
		return err
	}
	for rank := range s.World.Size() {
		lo, hi := s.part.block(rank)
		copy(all[4*lo:4*hi], padded[rank*len(mine):])
	}
	return nil
}

// finish writes the result file and prints the result. It is collective; rank 0 writes.
func (s *simulation) finish() error {
	end, err := s.collect()
	if err != nil {
		return err
	}
	digest := end.Digest()
	if s.common.Out != "" && s.World.Rank() == 0 {
		err := job.WriteResult(s.common.Out, func(w io.Writer) error {
			return end.Write(w, fmt.Sprintf("step: %d", s.step), "sha256: "+digest)
		})
		if err != nil {
			return err
		}
	}
	var first, last float64
	if s.energy {
		if first, err = s.totalEnergy(s.initial); err != nil {
			return err
		}
		if last, err = s.totalEnergy(end); err != nil {
			return err
		}
	}
	if s.World.Rank() != 0 {
		return nil
	}
	fmt.Printf("bodies   %d on %d ranks, %d steps\n", end.Len(), s.World.Size(), s.step)
	if s.energy {
		fmt.Printf("energy   %.12g, changed by %+.2e from %.12g\n", last, last-first, first)
	}
	if s.part.bodies <= toleranceLimit {
		bound := gravity.Divergence(gravitation, s.eps, s.initial.Pos, int(s.step), s.dt)
		if bound < 1 { // past 1 it has grown beyond use: the run is long for its system
			fmt.Printf("apart    at most %.2g on another kind of device\n", bound)
		}
	}
	fmt.Printf("sha256   %s\n", digest)
	return nil
}

// toleranceLimit is the number of bodies up to which the distance from another kind of device is printed: it takes all
// pairs on the host, which is minutes for ten times as many.
const toleranceLimit = 10000

// snapshotDue reports whether the bodies are to be written as they are at this step.
func (s *simulation) snapshotDue() bool {
	return s.snapshotEvery > 0 && s.step%s.snapshotEvery == 0
}

// snapshot writes the bodies as they are, as CSV, named by the step. It is collective;
// rank 0 writes. After a restart the same files are written again with the same bytes.
func (s *simulation) snapshot() error {
	all, err := s.collect()
	if err != nil || s.World.Rank() != 0 {
		return err
	}
	name := filepath.Join(s.snapshots, fmt.Sprintf("step-%08d.csv", s.step))
	return job.WriteFile(name, func(w io.Writer) error { return all.Write(w, fmt.Sprintf("step: %d", s.step)) })
}
