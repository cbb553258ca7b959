package gravity

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// Energy returns the total energy of n bodies, kinetic and potential:
//
//	E = Σ_i m[i] |v[i]|² / 2 - G Σ_pairs m[i] m[j] / sqrt(|x[j]-x[i]|² + eps²)
//
// pos holds x, y, z, mass of all bodies and vel their velocity and a fourth
// number that is ignored. All cores compute; the sum is in the order of the
// bodies, so it does not depend on how many there are.
func Energy(g, eps float64, pos, vel []float32) float64 {
	n := len(pos) / 4
	terms := make([]float64, n)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				vx, vy, vz := float64(vel[4*i]), float64(vel[4*i+1]), float64(vel[4*i+2])
				terms[i] = float64(pos[4*i+3]) * ((vx*vx+vy*vy+vz*vz)/2 - g*inverseDistances(eps, pos, i))
			}
		})
	}
	workers.Wait()
	var sum float64
	for _, t := range terms {
		sum += t
	}
	return sum
}

// inverseDistances returns Σ m[j] / sqrt(|x[j]-x[i]|²+eps²) over the bodies j that follow i.
func inverseDistances(eps float64, pos []float32, i int) float64 {
	x, y, z := float64(pos[4*i]), float64(pos[4*i+1]), float64(pos[4*i+2])
	var sum float64
	for p := pos[4*i+4:]; len(p) >= 4; p = p[4:] {
		dx, dy, dz := float64(p[0])-x, float64(p[1])-y, float64(p[2])-z
		sum += float64(p[3]) / math.Sqrt(dx*dx+dy*dy+dz*dz+eps*eps)
	}
	return sum
}
