package gravity

import (
	"math"
	"testing"

	"github.com/holdfast-hpc/holdfast/apps/internal/jobtest"
	"github.com/holdfast-hpc/holdfast/apps/nbody/bodies"
)

// circular returns two bodies of masses 0.75 and 0.25 on circular orbits at
// distance 1 around their centre of mass; the period is 2π.
func circular() *bodies.System {
	s := bodies.New(2)
	s.Set(0, 0.75, [3]float64{-0.25, 0, 0}, [3]float64{0, -0.25, 0})
	s.Set(1, 0.25, [3]float64{0.75, 0, 0}, [3]float64{0, 0.75, 0})
	return s
}

// TestSecondOrder checks that halving the step divides the error after one
// period by four.
func TestSecondOrder(t *testing.T) {
	last := 0.0
	for _, steps := range []int{250, 500, 1000} {
		s := circular()
		sim := jobtest.NewSim(1, 0, s.Pos, s.Vel)
		for range steps {
			sim.Step(2 * math.Pi / float64(steps))
		}
		err := math.Hypot(sim.Pos[3]-0.75, sim.Pos[4])
		if last != 0 && math.Abs(last/err-4) > 0.1 {
			t.Errorf("%d steps: the error fell by a factor %.3f, want 4", steps, last/err)
		}
		last = err
	}
}

// energy returns the total energy, kinetic plus potential.
func energy(s *jobtest.Sim) float64 {
	var sum float64
	for i, m := range s.Mass {
		v := s.Vel[3*i : 3*i+3]
		sum += m * (v[0]*v[0] + v[1]*v[1] + v[2]*v[2]) / 2
		for j := i + 1; j < len(s.Mass); j++ {
			dx, dy, dz := s.Pos[3*j]-s.Pos[3*i], s.Pos[3*j+1]-s.Pos[3*i+1], s.Pos[3*j+2]-s.Pos[3*i+2]
			sum -= s.G * m * s.Mass[j] / math.Sqrt(dx*dx+dy*dy+dz*dz+s.Eps*s.Eps)
		}
	}
	return sum
}

// TestEnergyOfTwoBodies: T = 3/32, U = -3/16 by hand.
func TestEnergyOfTwoBodies(t *testing.T) {
	s := circular()
	if got := Kinetic(s.Pos, s.Vel, 0, 2); got != 3.0/32 {
		t.Errorf("kinetic energy: got %v, want 3/32", got)
	}
	if got := Potential(1, 0, s.Pos, 0, 2); got != -3.0/16 {
		t.Errorf("potential energy: got %v, want -3/16", got)
	}
	if got := Potential(2, math.Sqrt(3), s.Pos, 0, 2); math.Abs(got+3.0/16) > 1e-16 {
		t.Errorf("softened potential energy with G = 2: got %v, want -3/16", got)
	}
	if got := energy(jobtest.NewSim(1, 0, s.Pos, s.Vel)); math.Abs(got+3.0/32) > 1e-15 {
		t.Errorf("total energy: got %v, want -3/32", got)
	}
}

// TestPotentialSharesAddUp splits the bodies in uneven ranges: each pair must be
// counted once, for odd and even numbers of bodies.
func TestPotentialSharesAddUp(t *testing.T) {
	for _, n := range []int{2, 3, 10, 11, 64} {
		s, err := bodies.Plummer(n, uint64(n))
		if err != nil {
			t.Fatal(err)
		}
		sim := jobtest.NewSim(1, 0.1, s.Pos, s.Vel)
		want := energy(sim) - Kinetic(s.Pos, s.Vel, 0, n)
		var got float64
		for _, r := range [][2]int{{0, n / 3}, {n / 3, n / 2}, {n / 2, n}} {
			got += Potential(1, 0.1, s.Pos, r[0], r[1])
		}
		// n² terms of about 1/n² are summed in two orders.
		if math.Abs(got-want) > 1e-15*float64(n) {
			t.Errorf("%d bodies: shares add up to %v, want %v", n, got, want)
		}
	}
}

// TestPlummerEnergy checks the sample against the model, E = -1/4 and
// T = -U/2. The spread of the mean of n speeds squared is below 1/sqrt(n); the
// cut at ten scale lengths makes the sphere some 2 % more compact.
func TestPlummerEnergy(t *testing.T) {
	const n = 4000
	s, err := bodies.Plummer(n, 5)
	if err != nil {
		t.Fatal(err)
	}
	kinetic, potential := Kinetic(s.Pos, s.Vel, 0, n), Potential(1, 0, s.Pos, 0, n)
	tolerance := 0.02*0.25 + 5*0.25/math.Sqrt(n)
	if e := kinetic + potential; math.Abs(e+0.25) > tolerance {
		t.Errorf("total energy: got %.4f, want -0.25 ± %.3f", e, tolerance)
	}
	if q := -kinetic / potential; math.Abs(q-0.5) > 2*tolerance {
		t.Errorf("virial ratio: got %.4f, want 0.5 ± %.3f", q, 2*tolerance)
	}
}

// TestMomentumIsKept: the forces of a pair cancel up to rounding, so total
// momentum stays where it was.
func TestMomentumIsKept(t *testing.T) {
	s, _ := bodies.Plummer(50, 9)
	sim := jobtest.NewSim(1, 0.05, s.Pos, s.Vel)
	momentum := func() (p [3]float64) {
		for i, m := range sim.Mass {
			for k := range p {
				p[k] += m * sim.Vel[3*i+k]
			}
		}
		return p
	}
	before := momentum()
	for range 100 {
		sim.Step(0.01)
	}
	for k, p := range momentum() {
		if math.Abs(p-before[k]) > 1e-13 {
			t.Errorf("axis %d: momentum went from %g to %g", k, before[k], p)
		}
	}
}

func TestCoincidentBodiesDoNotAct(t *testing.T) {
	acc := make([]float64, 6)
	jobtest.Accelerate(acc, []float64{1, 2, 3, 1, 2, 3}, []float64{1, 1}, 1, 0)
	for _, a := range acc {
		if a != 0 {
			t.Fatalf("got acceleration %v, want none", acc)
		}
	}
}

func BenchmarkPotential(b *testing.B) {
	s, _ := bodies.Plummer(2048, 1)
	b.SetBytes(2048 * 2047 / 2 * 16)
	for b.Loop() {
		Potential(1, 0.01, s.Pos, 0, 2048)
	}
}

// TestDivergence integrates a sphere in float32 with the bodies summed in two
// orders, as two devices might round, and checks that the positions part, but
// by less than the bound, and that the bound is small against the way gone.
func TestDivergence(t *testing.T) {
	const n, steps, dt, eps = 256, 50, 0.002, 0.05
	s, err := bodies.Plummer(n, 11)
	if err != nil {
		t.Fatal(err)
	}
	up, down := single(s, steps, dt, eps, false), single(s, steps, dt, eps, true)
	var apart, gone float64
	for i := range up {
		apart = math.Max(apart, math.Abs(float64(up[i])-float64(down[i])))
		gone = math.Max(gone, math.Abs(float64(up[i])-float64(s.Pos[i])))
	}
	bound := Divergence(1, eps, s.Pos, steps, dt)
	t.Logf("went up to %.2g, came apart by %.2g, bound %.2g", gone, apart, bound)
	if apart == 0 || apart > bound || bound > gone/100 {
		t.Errorf("want 0 < %.2g <= %.2g <= %.2g/100", apart, bound, gone)
	}
}

// single integrates s in float32 and returns the positions; reverse sums the
// bodies in descending order.
func single(s *bodies.System, steps int, dt, eps float32, reverse bool) []float32 {
	n := s.Len()
	pos, vel := append([]float32(nil), s.Pos...), append([]float32(nil), s.Vel...)
	acc := make([]float32, 4*n)
	accelerate := func() {
		for i := range n {
			var a [3]float32
			for k := range n {
				j := k
				if reverse {
					j = n - 1 - k
				}
				d := [3]float32{pos[4*j] - pos[4*i], pos[4*j+1] - pos[4*i+1], pos[4*j+2] - pos[4*i+2]}
				r2 := d[0]*d[0] + d[1]*d[1] + d[2]*d[2] + eps*eps
				inverse := 1 / float32(math.Sqrt(float64(r2)))
				f := pos[4*j+3] * inverse * inverse * inverse
				for c := range a {
					a[c] += f * d[c]
				}
			}
			copy(acc[4*i:], a[:])
		}
	}
	kick := func() {
		for k := range vel {
			vel[k] += acc[k] * dt / 2
		}
	}
	for accelerate(); steps > 0; steps-- {
		kick()
		for i := range n {
			for c := range 3 {
				pos[4*i+c] += vel[4*i+c] * dt
			}
		}
		accelerate()
		kick()
	}
	return pos
}
