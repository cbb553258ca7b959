package remote

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpubench"
	"github.com/holdfast-hpc/holdfast/internal/bench"
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
func (s *suite) rates(ctx context.Context, probes []*probe, kind string, dir direction, n int, memory func(*probe) []byte) error {
	repeat := max(1, (32<<20)/n)
	values := make([]bench.Samples, len(probes))
	for run := range s.o.Runs + 1 { // the first warms up
		for i, p := range probes {
			m := memory(p)[:n]
			t, err := seconds(func() error {
				for range repeat {
					if err := dir.move(p, m); err != nil {
						return err
					}
				}
				return p.q.Finish()
			})
			if err != nil {
				return err
			}
			if run > 0 {
				values[i] = append(values[i], float64(n)*float64(repeat)/t/1e9)
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	for i, p := range probes[1:] {
		goal := 0.9
		if p.name != "unix socket" {
			goal = 0
		}
		s.add(bench.Line{Case: p.name, Metric: kind + dir.name + " " + sizeText(n) + dir.suffix, Unit: "GB/s"}, values[i+1], values[0], goal)
	}
	return nil
}

// launches measures short kernels a second, with the default window and arguments
// set anew before each, and the time of one launch that is waited for.
func (s *suite) launches(ctx context.Context) error {
	const n = 3000
	ways := s.ways()
	rate, trip := make([]bench.Samples, len(ways)), make([]bench.Samples, len(ways))
	for i, w := range ways {
		d, err := w.open()
		if err != nil {
			return err
		}
		k, err := gpubench.Busy(d, 64, 0)
		if err != nil {
			return errors.Join(err, d.Close())
		}
		q, err := d.Queue("q")
		if err != nil {
			return errors.Join(err, d.Close())
		}
		for run := range s.o.Runs + 1 {
			t, err := seconds(func() error {
				for range n {
					if err := k.SetArg(1, int32(0)); err != nil {
						return err
					}
					if _, err := q.Launch(k, []int{64}, []int{64}); err != nil {
						return err
					}
				}
				return q.Finish()
			})
			if err != nil {
				return errors.Join(err, d.Close())
			}
			one, err := seconds(func() error {
				for range n / 10 {
					if _, err := q.Launch(k, []int{64}, []int{64}); err != nil {
						return err
					}
					if err := q.Finish(); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return errors.Join(err, d.Close())
			}
			if run > 0 {
				rate[i], trip[i] = append(rate[i], n/t), append(trip[i], one/(n/10)*1e6)
			}
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), d.Close())
			}
		}
		if err := d.Close(); err != nil {
			return err
		}
	}
	for i, w := range ways[1:] {
		s.add(bench.Line{Case: w.name, Metric: "kernel launches", Unit: "1/s"}, rate[i+1], rate[0], 0)
		s.slower(bench.Line{Case: w.name, Metric: "launch and wait", Unit: "us"}, trip[i+1], trip[0], 0)
	}
	return nil
}
