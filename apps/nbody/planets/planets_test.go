package planets

import (
	"bytes"
	"math"
	"os"
	"testing"

	"github.com/holdfast-hpc/holdfast/apps/nbody/bodies"
	"github.com/holdfast-hpc/holdfast/apps/nbody/gravity"
)

const input = "../input/solar-j2000.csv"

// TestInputIsGenerated: the checked-in file is what the generator writes.
func TestInputIsGenerated(t *testing.T) {
	want, err := os.ReadFile(input)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := Write(&got, J2000); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%s is not what the generator writes; run go generate ./apps/nbody/planets\ngot:\n%s", input,
			got.Bytes())
	}
}

func TestKeplersEquation(t *testing.T) {
	for _, ecc := range []float64{0, 0.0167, 0.2, 0.9} {
		for m := -3.0; m <= 3; m += 0.5 {
			e := EccentricAnomaly(m, ecc)
			if got := e - ecc*math.Sin(e); math.Abs(got-m) > 1e-14 {
				t.Errorf("ecc %v, mean anomaly %v: E = %v gives %v", ecc, m, e, got)
			}
		}
	}
}

// TestVisViva checks speed against distance on every orbit,
// v² = mu (2/r - 1/a), and that the plane is inclined as stated.
func TestVisViva(t *testing.T) {
	for _, p := range Planets {
		mu := bodies.SolarG * (1 + 1/p.SunRatio)
		e := p.At(J2000 + 3000)
		pos, vel := e.State(mu)
		r, v2 := norm(pos), dot(vel, vel)
		if want := mu * (2/r - 1/e.SemiMajor); math.Abs(v2/want-1) > 1e-13 {
			t.Errorf("%s: speed² %g at distance %g, want %g", p.Name, v2, r, want)
		}
		h := cross(pos, vel)
		if got := math.Acos(h[2] / norm(h)); math.Abs(got-math.Abs(e.Inclination)*degree) > 1e-7 {
			t.Errorf("%s: inclination %g, want %g degrees", p.Name, got/degree, e.Inclination)
		}
	}
}

// sidereal holds the sidereal orbit periods in Julian years that JPL publishes
// (ssd.jpl.nasa.gov, Planets: Physical Characteristics, reference B), and for
// Uranus and Neptune the rounder ones of the Royal Museums Greenwich.
var sidereal = []float64{0.2408467, 0.61519726, 1.0000174, 1.8808476, 11.862615, 29.447498, 84.01, 164.79}

// fitError is the error of the elements over 1800 to 2050 that their source
// states, as a fraction of the distance to the Sun: the larger of the angle and
// the distance.
var fitError = []float64{7.3e-5, 9.7e-5, 9.7e-5, 1.9e-4, 1.9e-3, 2.9e-3, 3.5e-4, 4.8e-5}

// TestOrbitalPeriods integrates the checked-in system until each planet has
// gone round the Sun a number of times and compares the mean period with the
// published one. The period P follows from the orbit's energy,
// dP/P = 3 (dr/r + dv/v) for a nearly circular orbit, so the tolerance is
//
//	3 (ε + ε) + 3 v/v[i]
//
// The first part is the fit's error ε in the position and, since it changes
// within about one revolution, in the velocity. The second counts for the
// planets beyond Jupiter: the fit is relative to the Sun, but they go round the
// centre of mass, and averaging over centuries removes the Sun's own velocity
// around it (v, from the file) from the one but not from the other.
// Leapfrog adds (2π dt/P)²/2 at most, 1e-5 with these steps.
func TestOrbitalPeriods(t *testing.T) {
	cases := []struct {
		revolutions int
		dt          float64 // days
	}{{10, 0.0625}, {10, 0.125}, {10, 0.25}, {10, 0.25}, {5, 2}, {4, 2}, {2, 5}, {1, 5}}
	s := readInput(t)
	for i, c := range cases {
		tolerance := 6 * fitError[i]
		if i > 4 {
			tolerance += 3 * speed(s, 0) / speed(s, i+1)
		}
		sim := gravity.NewSim(s.Units.G(), 0, s.Pos, s.Vel)
		got := meanPeriod(sim, i+1, c.revolutions, c.dt) / 365.25
		off := got/sidereal[i] - 1
		t.Logf("%-10s %11.7f years, published %11.7f, off by %+.1e, tolerance %.1e",
			s.Names[i+1], got, sidereal[i], off, tolerance)
		if math.Abs(off) > tolerance {
			t.Errorf("%s: period off by more than the tolerance", s.Names[i+1])
		}
	}
}

func readInput(t *testing.T) *bodies.System {
	t.Helper()
	f, err := os.Open(input)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := bodies.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func speed(s *bodies.System, i int) float64 {
	v := s.Vel[4*i : 4*i+3]
	return norm([3]float64{float64(v[0]), float64(v[1]), float64(v[2])})
}

// meanPeriod integrates until body i has gone round body 0 the given number of
// times and returns the time per revolution, interpolated in the last step.
func meanPeriod(sim *gravity.Sim, i, revolutions int, dt float64) float64 {
	longitude := func() float64 {
		return math.Atan2(sim.Pos[3*i+1]-sim.Pos[1], sim.Pos[3*i]-sim.Pos[0])
	}
	goal := 2 * math.Pi * float64(revolutions)
	for last, gone := longitude(), 0.0; ; {
		sim.Step(dt)
		now := longitude()
		moved := math.Remainder(now-last, 2*math.Pi)
		if gone+moved >= goal {
			return (sim.Elapsed - dt*(gone+moved-goal)/moved) / float64(revolutions)
		}
		gone, last = gone+moved, now
	}
}

// TestEnergyOfTheSolarSystem: leapfrog is symplectic, so its energy error
// swings but does not grow with time, and is of second order in the step.
func TestEnergyOfTheSolarSystem(t *testing.T) {
	s := readInput(t)
	worst := func(dt, years float64) float64 {
		sim := gravity.NewSim(s.Units.G(), 0, s.Pos, s.Vel)
		start, off := sim.Energy(), 0.0
		for sim.Elapsed < years*365.25 {
			sim.Step(dt)
			off = math.Max(off, math.Abs(sim.Energy()/start-1))
		}
		return off
	}
	two, twenty, fine := worst(0.5, 2), worst(0.5, 20), worst(0.25, 2)
	if twenty > 1.05*two {
		t.Errorf("energy is off by %.2e after 20 years and %.2e after 2, want no growth", twenty, two)
	}
	if ratio := two / fine; ratio < 3.8 || ratio > 4.2 {
		t.Errorf("half the step divides the energy error by %.2f, want 4", ratio)
	}
}

func dot(a, b [3]float64) float64 { return a[0]*b[0] + a[1]*b[1] + a[2]*b[2] }

func norm(a [3]float64) float64 { return math.Sqrt(dot(a, a)) }

func cross(a, b [3]float64) [3]float64 {
	return [3]float64{a[1]*b[2] - a[2]*b[1], a[2]*b[0] - a[0]*b[2], a[0]*b[1] - a[1]*b[0]}
}
