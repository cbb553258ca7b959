package main

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/apps/nbody/bodies"
	"github.com/holdfast-hpc/holdfast/apps/nbody/gravity"
	"github.com/holdfast-hpc/holdfast/apps/nbody/kernel"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// totalEnergy returns the energy of all bodies, on every rank. It is collective: each rank
// computes the share of its bodies, and all add the shares in the order of ranks, so that the
// sum does not depend on how an MPI library reduces.
func (s *simulation) totalEnergy(all *bodies.System) (total float64, err error) {
	lo, hi := s.part.block(s.World.Rank())
	var potential float64
	if s.Device.Info().FP64 { // all pairs take the host much longer than a thousand steps take a GPU
		if potential, err = s.engine.potential(s.Device, gravitation, s.eps, all.Pos, lo); err != nil {
			return 0, err
		}
	} else {
		if n := all.Len(); n*n > manyPairs {
			s.Sayf("the host computes the energy of %d bodies, as the device has no double precision; -energy=false "+
				"leaves it out", n)
		}
		potential = gravity.Potential(gravitation, s.eps, all.Pos, lo, hi)
	}
	shares := make([]float64, s.World.Size())
	mine := gravity.Kinetic(all.Pos, all.Vel, lo, hi) + potential
	if err := mpiwrap.Allgather(s.World, shares, []float64{mine}); err != nil {
		return 0, err
	}
	for _, share := range shares {
		total += share
	}
	return total, nil
}

// manyPairs is the number of pairs from which the host takes some seconds for the potential energy.
const manyPairs = 1 << 32

// potential computes the share of the engine's bodies, which begin at lo in pos, on the device. Each body counts half
// of its pairs with all others; the sums are added in the order of the bodies. Its objects on the device are gone when
// it returns.
func (e *engine) potential(dev *job.Device, g, eps float64, pos []float32, lo int) (sum float64, err error) {
	release := func(r interface{ Release() error }) { err = errors.Join(err, r.Release()) }
	prog, err := dev.Program("nbody", kernel.Sources, kernel.Options)
	if err != nil {
		return 0, err
	}
	k, err := prog.Kernel(kernel.Potential)
	if err != nil {
		return 0, err
	}
	defer release(k)
	all, err := dev.Buffer("", 4*len(pos))
	if err != nil {
		return 0, err
	}
	defer release(all)
	out, err := dev.Buffer("", 8*e.n)
	if err != nil {
		return 0, err
	}
	defer release(out)
	if err := e.queue.Write(all, 0, gpustate.Bytes(pos)); err != nil {
		return 0, err
	}
	if err := e.launch(k, out, all, int32(e.n), int32(lo), int32(len(pos)/4), eps*eps); err != nil {
		return 0, err
	}
	terms := make([]float64, e.n)
	if err := e.queue.Read(out, 0, gpustate.Bytes(terms)); err != nil {
		return 0, err
	}
	for i, t := range terms {
		sum += float64(pos[4*(lo+i)+3]) * t
	}
	return -g * sum / 2, nil
}
