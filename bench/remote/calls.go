package remote

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/bench/raw"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// sizes of transfers, 64 KiB to 256 MiB.
var sizes = []int{64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20}

func sizeText(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// bandwidth moves blocks of plain memory and of host buffers each way: with calls
// that return when they are done, one after the other, and with calls that do not
// wait, many in flight. Both end when the device has all.
func (s *suite) bandwidth(ctx context.Context) error {
	largest := sizes[len(sizes)-1]
	var probes []*probe
	defer func() {
		for _, p := range probes {
			_ = p.d.Close() // the figures are taken
		}
	}()
	for _, w := range s.ways() {
		p, err := newProbe(w, largest)
		if err != nil {
			return err
		}
		probes = append(probes, p)
	}
	plain := make([]byte, largest)
	for i := range plain {
		plain[i] = byte(i)
	}
	for _, m := range []struct {
		name string
		of   func(*probe) []byte
	}{
		{"", func(*probe) []byte { return plain }},
		{"host buffer: ", func(p *probe) []byte { return p.h.Host() }},
	} {
		for _, dir := range directions {
			for _, n := range sizes {
				if err := s.rates(ctx, probes, m.name, dir, n, m.of); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// direction is one way to move bytes.
type direction struct {
	name, suffix string
	move         func(p *probe, m []byte) error
}

var directions = []direction{
	{"host to device", "", func(p *probe, m []byte) error { return p.q.Write(p.b, 0, m) }},
	{"device to host", "", func(p *probe, m []byte) error { return p.q.Read(p.b, 0, m) }},
	{"host to device", ", in flight", func(p *probe, m []byte) error {
		_, err := p.q.WriteAsync(p.b, 0, m)
		return err
	}},
	{"device to host", ", in flight", func(p *probe, m []byte) error {
		_, err := p.q.ReadAsync(p.b, 0, m)
		return err
	}},
}

// probe is a device with a buffer.
type probe struct {
	way
	d *gpustate.Device
	q *gpustate.Queue
	b *gpustate.Buffer
	h *gpustate.HostBuffer
}

func newProbe(w way, bytes int) (p *probe, err error) {
	p = &probe{way: w}
	if p.d, err = w.open(); err != nil {
		return nil, err
	}
	if p.q, err = p.d.Queue("q"); err == nil {
		p.b, err = p.d.Buffer("b", bytes)
	}
	if err == nil {
		p.h, err = p.d.HostBuffer("h", bytes)
	}
	if err != nil {
		return nil, errors.Join(err, p.d.Close())
	}
	return p, nil
}

// rates measures one size on all probes in turn.
func (s *suite) rates(ctx context.Context, probes []*probe, kind string, dir direction, n int,
	memory func(*probe) []byte) error {
	repeat := max(1, (32<<20)/n)
	var ways []func() (float64, error)
	for _, p := range probes {
		ways = append(ways, func() (float64, error) {
			return seconds(p.q, repeat, func() error { return dir.move(p, memory(p)[:n]) })
		})
	}
	took, err := bench.InTurn(ctx, s.Runs, ways...)
	if err != nil {
		return err
	}
	rate := func(i int) bench.Samples { return took[i].Rates(float64(n) * float64(repeat) / 1e9) }
	for i, p := range probes[1:] {
		var goal bench.Goal
		if p.name == "unix socket" {
			goal = bench.AtLeast(0.9)
		}
		s.Add(bench.Row{Case: p.name, Metric: kind + dir.name + " " + sizeText(n) + dir.suffix,
			Unit: "GB/s"}.Of(rate(i+1), rate(0), goal))
	}
	return nil
}

// seconds returns the time that a queue takes to do something this many times.
func seconds(q *gpustate.Queue, times int, do func() error) (float64, error) {
	return bench.Seconds(func() error {
		for range times {
			if err := do(); err != nil {
				return err
			}
		}
		return q.Finish()
	})
}

// launches measures short kernels a second, with the default window and arguments
// set again before each, and the time of one launch that is waited for.
func (s *suite) launches(ctx context.Context) error {
	ways := s.ways()
	var rate, trip []bench.Samples
	for _, w := range ways {
		r, t, err := s.launchTimes(ctx, w)
		if err != nil {
			return err
		}
		rate, trip = append(rate, r), append(trip, t)
	}
	for i, w := range ways[1:] {
		s.Add(bench.Row{Case: w.name, Metric: "kernel launches", Unit: "1/s"}.Of(rate[i+1], rate[0], nil),
			bench.Row{Case: w.name, Metric: "launch and wait", Unit: "us"}.Of(trip[i+1], trip[0], nil))
	}
	return nil
}

func (s *suite) launchTimes(ctx context.Context, w way) (rate, trip bench.Samples, err error) {
	const n = 3000
	d, err := w.open()
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	k, err := raw.Busy(d, 64, 0)
	if err != nil {
		return nil, nil, err
	}
	q, err := d.Queue("q")
	if err != nil {
		return nil, nil, err
	}
	launch := func() error {
		_, err := q.Launch(k, []int{64}, []int{64})
		return err
	}
	took, err := bench.InTurn(ctx, s.Runs,
		func() (float64, error) {
			return seconds(q, n, func() error {
				if err := k.SetArg(1, int32(0)); err != nil {
					return err
				}
				return launch()
			})
		},
		func() (float64, error) {
			return seconds(q, n/10, func() error { return errors.Join(launch(), q.Finish()) })
		})
	if err != nil {
		return nil, nil, err
	}
	return took[0].Rates(n), took[1].Times(1e6 / (n / 10)), nil
}
