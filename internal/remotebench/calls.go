package remotebench

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate"
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

// bandwidth moves blocks of plain memory and of host buffers each way.
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
	for _, n := range sizes {
		if err := s.rates(ctx, probes, "", n, func(*probe) []byte { return plain[:n] }, 0.9); err != nil {
			return err
		}
	}
	for _, n := range sizes {
		if err := s.rates(ctx, probes, "host buffer: ", n, func(p *probe) []byte { return p.h.Host()[:n] }, 0.9); err != nil {
			return err
		}
	}
	return nil
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
func (s *suite) rates(ctx context.Context, probes []*probe, kind string, n int, memory func(*probe) []byte, goal float64) error {
	repeat := max(1, (32<<20)/n)
	for _, dir := range []struct {
		name string
		move func(p *probe, m []byte) error
	}{
		{"host to device", func(p *probe, m []byte) error { return p.q.Write(p.b, 0, m) }},
		{"device to host", func(p *probe, m []byte) error { return p.q.Read(p.b, 0, m) }},
	} {
		values := make([]bench.Samples, len(probes))
		for run := range s.o.Runs + 1 { // the first warms up
			for i, p := range probes {
				m := memory(p)
				t, err := seconds(func() error {
					for range repeat {
						if err := dir.move(p, m); err != nil {
							return err
						}
					}
					return nil
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
			g := goal
			if p.name != "unix socket" {
				g = 0
			}
			s.add(bench.Line{Case: p.name, Metric: kind + dir.name + " " + sizeText(n), Unit: "GB/s"}, values[i+1], values[0], g)
		}
	}
	return nil
}

// work is a kernel that keeps each work item busy for n rounds.
var work = gpustate.Sources{
	OpenCL: `__kernel void busy(__global float *x, int n) {
	int i = get_global_id(0);
	float v = x[i];
	for (int k = 0; k < n; k++) v = v * 0.999f + 0.5f;
	x[i] = v;
}`,
	CUDA: `extern "C" __global__ void busy(float *x, int n) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float v = x[i];
	for (int k = 0; k < n; k++) v = v * 0.999f + 0.5f;
	x[i] = v;
}`,
}

// kernelOf makes the kernel with its arguments on a device.
func kernelOf(d *gpustate.Device, items, rounds int) (*gpustate.Kernel, error) {
	x, err := d.Buffer("x", 4*items)
	if err != nil {
		return nil, err
	}
	p, err := d.Program("busy", work, "")
	if err != nil {
		return nil, err
	}
	k, err := p.Kernel("busy")
	if err != nil {
		return nil, err
	}
	return k, k.SetArgs(x, int32(rounds))
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
		k, err := kernelOf(d, 64, 0)
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
