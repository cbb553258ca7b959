package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/holdfast-hpc/holdfast/apps/internal/jobtest"
	"github.com/holdfast-hpc/holdfast/apps/nbody/bodies"
	"github.com/holdfast-hpc/holdfast/apps/nbody/gravity"
	"github.com/holdfast-hpc/holdfast/apps/nbody/kernel"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// eachDevice runs a test on every device of this machine.
func eachDevice(t *testing.T, test func(t *testing.T, dev *gpustate.Device)) {
	infos, err := gpustate.Devices()
	if err != nil || len(infos) == 0 {
		t.Skipf("no device here (%v); make setup installs PoCL", err)
	}
	for _, info := range infos {
		t.Run(fmt.Sprintf("%s %s", info.Kind, info.Platform), func(t *testing.T) {
			dev, err := gpustate.Open(gpustate.Select{Kind: info.Kind, Platform: info.Platform, Name: info.Name})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			test(t, dev)
		})
	}
}

// A bench holds the objects of one test.
type bench struct {
	t             *testing.T
	q             *gpustate.Queue
	prog          *gpustate.Program
	pos, vel, acc *gpustate.Buffer
}

func newBench(t *testing.T, dev *gpustate.Device, s *bodies.System) *bench {
	t.Helper()
	b := &bench{t: t}
	var err error
	check := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b.q, err = dev.Queue("q")
	check()
	b.prog, err = dev.Program("nbody", kernel.Sources, kernel.Options)
	check()
	b.pos, err = dev.Buffer("pos", 16*s.Len())
	check()
	b.vel, err = dev.Buffer("vel", 16*s.Len())
	check()
	b.acc, err = dev.Buffer("acc", 16*s.Len())
	check()
	err = b.q.Write(b.pos, 0, gpustate.Bytes(s.Pos))
	check()
	err = b.q.Write(b.vel, 0, gpustate.Bytes(s.Vel))
	check()
	return b
}

// launch runs a kernel on n bodies.
func (b *bench) launch(name string, n int, args ...any) {
	b.t.Helper()
	k, err := b.prog.Kernel(name)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := k.SetArgs(args...); err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.q.Launch(k, []int{kernel.Global(n)}, []int{kernel.Group}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) read(buffer *gpustate.Buffer, n int) []float32 {
	b.t.Helper()
	out := make([]float32, 4*n)
	if err := b.q.Read(buffer, 0, gpustate.Bytes(out)); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// TestAccelerate compares the kernel with the reference in float64, in one block
// and in two. n sums of n terms in float32 are off by at most (n+k) u times the
// sum of the terms' sizes, k and u as in gravity.Divergence.
func TestAccelerate(t *testing.T) {
	for _, n := range []int{1, 2, 63, 64, 65, 500} {
		for _, eps := range []float64{0, 0.05} {
			s := sphere(t, n)
			eachDevice(t, func(t *testing.T, dev *gpustate.Device) {
				b := newBench(t, dev, s)
				want, sizes := reference(s, eps)
				e2 := float32(eps * eps)
				b.launch(kernel.Accelerate, n, b.acc, b.pos, b.pos, int32(n), int32(n), float32(2), e2, int32(1))
				compare(t, n, b.read(b.acc, n), want, sizes)

				// The same again on top: twice the acceleration.
				b.launch(kernel.Accelerate, n, b.acc, b.pos, b.pos, int32(n), int32(n), float32(2), e2, int32(0))
				for i := range want {
					want[i] *= 2
				}
				for i := range sizes {
					sizes[i] *= 2
				}
				compare(t, n, b.read(b.acc, n), want, sizes)
			})
		}
	}
}

// sphere returns n bodies, of which the last two coincide.
func sphere(t *testing.T, n int) *bodies.System {
	t.Helper()
	s, err := bodies.Plummer(max(n, 2), 17)
	if err != nil {
		t.Fatal(err)
	}
	s.Pos, s.Vel = s.Pos[:4*n], s.Vel[:4*n]
	if n > 2 {
		copy(s.Pos[4*(n-1):], s.Pos[4*(n-2):4*(n-1)])
	}
	return s
}

// reference returns the accelerations with G = 2, and the sums of the sizes of
// their terms.
func reference(s *bodies.System, eps float64) (acc, sizes []float64) {
	sim := jobtest.NewSim(2, eps, s.Pos, s.Vel)
	sizes = make([]float64, s.Len())
	for i := range sizes {
		for j, m := range sim.Mass {
			d2 := eps * eps
			for k := range 3 {
				d2 += (sim.Pos[3*j+k] - sim.Pos[3*i+k]) * (sim.Pos[3*j+k] - sim.Pos[3*i+k])
			}
			if d2 > 0 && i != j {
				sizes[i] += 2 * m / d2
			}
		}
	}
	return sim.Acc, sizes
}

func compare(t *testing.T, n int, got []float32, want, sizes []float64) {
	t.Helper()
	const u, k = 1.0 / (1 << 24), 50
	for i := range n {
		for c := range 3 {
			off := math.Abs(float64(got[4*i+c]) - want[3*i+c])
			if !(off <= float64(n+k)*u*sizes[i]) {
				t.Fatalf("%d bodies: acceleration %d of body %d is %g, want %g ± %g", n, c, i,
					got[4*i+c], want[3*i+c], float64(n+k)*u*sizes[i])
			}
		}
	}
}

// TestLeapfrog runs one step and compares it with the same arithmetic in Go:
// products and sums are rounded one by one everywhere, so the bits agree.
func TestLeapfrog(t *testing.T) {
	const n, dt = 100, float32(0.01)
	s := sphere(t, n)
	eachDevice(t, func(t *testing.T, dev *gpustate.Device) {
		b := newBench(t, dev, s)
		b.launch(kernel.Accelerate, n, b.acc, b.pos, b.pos, int32(n), int32(n), float32(1), float32(0.01), int32(1))
		acc := b.read(b.acc, n)
		b.launch(kernel.KickDrift, n, b.pos, b.vel, b.acc, int32(n), dt/2, dt)
		b.launch(kernel.Kick, n, b.vel, b.acc, int32(n), dt/2)
		pos, vel := b.read(b.pos, n), b.read(b.vel, n)
		for i := range n {
			for c := range 3 {
				k := 4*i + c
				half := s.Vel[k] + float32(acc[k]*(dt/2))
				if want := s.Pos[k] + float32(half*dt); pos[k] != want {
					t.Fatalf("position %d of body %d is %v, want %v", c, i, pos[k], want)
				}
				if want := half + float32(acc[k]*(dt/2)); vel[k] != want {
					t.Fatalf("velocity %d of body %d is %v, want %v", c, i, vel[k], want)
				}
			}
			if pos[4*i+3] != s.Pos[4*i+3] {
				t.Fatalf("mass of body %d is %v, want %v", i, pos[4*i+3], s.Pos[4*i+3])
			}
		}
	})
}

// TestPotential compares the energy of all pairs with the reference on the host, in one
// block and in three. Both compute in double precision, in another order: n terms are
// off by at most n u times the sum of their sizes, which all have one sign.
func TestPotential(t *testing.T) {
	for _, n := range []int{2, 63, 64, 65, 300} {
		s := sphere(t, n)
		s.Pos[4*(n-1)] += 0.25 // no two at one place: without softening that is infinite
		for _, eps := range []float64{0, 0.05} {
			want := gravity.Potential(2, eps, s.Pos, 0, n)
			eachDevice(t, func(t *testing.T, dev *gpustate.Device) {
				if !dev.Info().FP64 {
					t.Skip("the device has no double precision")
				}
				b := newBench(t, dev, s)
				out, err := dev.Buffer("out", 8*n)
				if err != nil {
					t.Fatal(err)
				}
				for _, cuts := range [][]int{{0, n}, {0, n / 3, n / 2, n}} {
					var sum float64
					for i, lo := range cuts[:len(cuts)-1] {
						terms := make([]float64, cuts[i+1]-lo)
						if len(terms) == 0 {
							continue
						}
						b.launch(kernel.Potential, len(terms), out, b.pos, int32(len(terms)), int32(lo), int32(n),
							eps*eps)
						if err := b.q.Read(out, 0, gpustate.Bytes(terms)); err != nil {
							t.Fatal(err)
						}
						for k, v := range terms {
							sum -= float64(s.Pos[4*(lo+k)+3]) * v
						}
					}
					if off := math.Abs(sum - want); !(off <= float64(n)*0x1p-50*math.Abs(want)) {
						t.Errorf("%d bodies, eps %g, in %d block(s): %.15g, want %.15g", n, eps, len(cuts)-1, sum, want)
					}
				}
			})
		}
	}
}

// BenchmarkAccelerate counts 20 operations per pair, as is the custom.
func BenchmarkAccelerate(b *testing.B) {
	jobtest.EachDevice(b, func(b *testing.B, dev *gpustate.Device) {
		n := 2048
		if dev.Info().Type == "gpu" {
			n = 1 << 17
		}
		s, err := bodies.Plummer(n, 1)
		if err != nil {
			b.Fatal(err)
		}
		x := jobtest.NewBench(b, dev, kernel.Sources, kernel.Options,
			kernel.Accelerate)
		pos, acc := x.Buffer("pos", gpustate.Bytes(s.Pos)), x.Buffer("acc", make([]byte, 16*n))
		for b.Loop() {
			x.Launch([]int{kernel.Global(n)}, []int{kernel.Group}, acc, pos, pos, int32(n), int32(n), float32(1),
				float32(1e-4), int32(1))
		}
		b.ReportMetric(20*float64(n)*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	})
}
