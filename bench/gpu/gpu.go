// Package gpu measures the costs of gpustate on a device: the program's wait for a capture and the capture's whole
// time, the speed of a restore, the overhead of recording a call, and the cost of a command window. Each figure stands
// beside a baseline that is measured in the same run: the rate of pinned copies, the rate of copies within the device,
// the driver's own checkpoint.
package gpu

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/bench/raw"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// Options select the measurements. The zero value takes the best device and sizes that suit it.
type Options struct {
	Select gpustate.Select
	// Sizes are the bytes of state of the capture figures. nil: 4, 16 and 48 GiB
	// on a device with memory of its own, 256 MiB on others.
	Sizes []int64
}

// suite holds the common state of the measurements.
type suite struct {
	*bench.Runner
	Options
	info   gpustate.Info
	pinned float64 // bytes per second from device to host
	upload float64 // and from host to device
	inside float64 // and within the device
	rounds int     // of the kernel, so that it takes about a millisecond
	chunks []byte  // buffers of the readers
}

// Run measures everything.
func Run(ctx context.Context, r *bench.Runner, o Options) error {
	d, err := gpustate.Open(o.Select)
	if err != nil {
		return err
	}
	s := &suite{Runner: r, Options: o, info: d.Info()}
	if err := d.Close(); err != nil {
		return err
	}
	// the same device from now on, whatever matched first
	s.Select = gpustate.Select{Kind: s.info.Kind, Platform: s.info.Platform, Name: s.info.Name, PCI: s.info.PCI}
	if s.Sizes == nil {
		s.Sizes = []int64{256 << 20}
		if !s.info.HostMemory {
			s.Sizes = []int64{4 << 30, 16 << 30, 48 << 30}
		}
	}
	s.Start("gpu", 4+len(s.Sizes))
	for _, part := range []struct {
		name    string
		measure func(context.Context) error
	}{{"copies without gpustate", s.copies}, {"recording", s.recording}, {"command windows", s.windows}} {
		s.Step("%s", part.name)
		if err := part.measure(ctx); err != nil {
			return err
		}
	}
	for _, size := range s.Sizes {
		where := fmt.Sprintf("%.3g GiB", float64(size)/(1<<30))
		s.Step("capture and restore of %s", where)
		if err := s.size(ctx, where, size); err != nil {
			return err
		}
	}
	s.Step("the driver's own checkpoint")
	return s.driverCheckpoint(ctx)
}

// copies measures the device without gpustate: pinned copies in both directions and copies within the device.
func (s *suite) copies(ctx context.Context) (err error) {
	dev, err := raw.Open(s.Select)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	const rounds = 8
	piece := int64(256 << 20)
	if s.simple() {
		piece = 32 << 20
	}
	c, err := dev.Copies(piece)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Free()) }()
	for _, way := range []struct {
		metric string
		copy   func(times int) error
		rate   *float64
	}{{"pinned copy to host", c.Down, &s.pinned}, {"pinned copy to device", c.Up, &s.upload},
		{"copy within device", c.Inside, &s.inside}} {
		took, err := bench.InTurn(ctx, s.Runs, bench.Timed(func() error { return way.copy(rounds) }))
		if err != nil {
			return err
		}
		r := row("baseline", way.metric, "GB/s").Of(took[0].Rates(float64(rounds*piece)/1e9), nil, nil)
		*way.rate = r.Value * 1e9
		s.Add(r)
	}
	return nil
}

// simple reports whether the device has no memory of its own, so that copies mean little.
func (s *suite) simple() bool { return s.info.HostMemory || s.info.Kind == "fake" }

func row(where, metric, unit string) bench.Row {
	return bench.Row{Case: where, Metric: metric, Unit: unit}
}

// goal is g, on a device that has memory of its own.
func (s *suite) goal(g bench.Goal) bench.Goal {
	if s.simple() {
		return nil
	}
	return g
}
