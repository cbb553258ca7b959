package jobtest

import "math"

// A Sim is a system of bodies integrated on the host in float64, the reference for nbody.
type Sim struct {
	G, Eps float64
	Mass   []float64
	Pos    []float64 // x, y, z per body
	Vel    []float64
	Acc    []float64 // at Pos
}

// NewSim returns a Sim of the bodies in pos (x, y, z, mass) and vel.
func NewSim(g, eps float64, pos, vel []float32) *Sim {
	n := len(pos) / 4
	s := &Sim{G: g, Eps: eps, Mass: make([]float64, n), Pos: make([]float64, 3*n),
		Vel: make([]float64, 3*n), Acc: make([]float64, 3*n)}
	for i := range n {
		s.Mass[i] = float64(pos[4*i+3])
		for k := range 3 {
			s.Pos[3*i+k] = float64(pos[4*i+k])
			s.Vel[3*i+k] = float64(vel[4*i+k])
		}
	}
	Accelerate(s.Acc, s.Pos, s.Mass, g, eps)
	return s
}

// Step advances the system by dt with the leapfrog scheme in its
// kick-drift-kick form, which is symplectic and of second order:
//
//	v' = v + a(x) dt/2
//	x₁ = x + v' dt
//	v₁ = v' + a(x₁) dt/2
func (s *Sim) Step(dt float64) {
	s.kick(dt / 2)
	for k, v := range s.Vel {
		s.Pos[k] += v * dt
	}
	Accelerate(s.Acc, s.Pos, s.Mass, s.G, s.Eps)
	s.kick(dt / 2)
}

func (s *Sim) kick(dt float64) {
	for k, a := range s.Acc {
		s.Vel[k] += a * dt
	}
}

// Accelerate sets acc to the softened gravity of all bodies on each other:
//
//	acc[i] = G Σ_j m[j] (x[j]-x[i]) / (|x[j]-x[i]|² + eps²)^(3/2)
//
// x and acc are n×3, row-major; m has n elements; eps may be 0, bodies at one
// place then do not act on each other. j ascends.
// Softening: Dehnen, MNRAS 324 (2001) 273.
func Accelerate(acc, x, m []float64, g, eps float64) {
	for i := range m {
		var ax, ay, az float64
		for j, mj := range m {
			dx, dy, dz := x[3*j]-x[3*i], x[3*j+1]-x[3*i+1], x[3*j+2]-x[3*i+2]
			r2 := dx*dx + dy*dy + dz*dz + eps*eps
			if r2 == 0 {
				continue
			}
			f := mj / (r2 * math.Sqrt(r2))
			ax, ay, az = ax+f*dx, ay+f*dy, az+f*dz
		}
		acc[3*i], acc[3*i+1], acc[3*i+2] = g*ax, g*ay, g*az
	}
}
