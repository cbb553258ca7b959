package gravity

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// Kinetic returns the kinetic energy of bodies lo to hi-1:
//
//	T = Σ_i m[i] |v[i]|² / 2
//
// pos holds x, y, z, mass of all bodies and vel their velocity and a fourth
// number that is ignored.
func Kinetic(pos, vel []float32, lo, hi int) float64 {
	var sum float64
	for i := lo; i < hi; i++ {
		vx, vy, vz := float64(vel[4*i]), float64(vel[4*i+1]), float64(vel[4*i+2])
		sum += float64(pos[4*i+3]) * (vx*vx + vy*vy + vz*vz) / 2
	}
	return sum
}

// Potential returns the share of bodies lo to hi-1 in the potential energy of
// all n bodies in pos:
//
//	U = -G Σ_pairs m[i] m[j] / sqrt(|x[j]-x[i]|² + eps²)
//
// Each pair is counted by one of its bodies: body i counts the pairs with the
// bodies i+1 ... i+(n-1)/2, modulo n, and for even n the lower half counts the
// one opposite as well. So ranks with equal numbers of bodies have equal work,
// and the shares of a partition of all bodies add up to U. All cores compute; the
// sum is in the order of the bodies, so it does not depend on how many there are.
func Potential(g, eps float64, pos []float32, lo, hi int) float64 {
	n := len(pos) / 4
	terms := make([]float64, max(hi-lo, 0))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for k := int(next.Add(1)) - 1; k < len(terms); k = int(next.Add(1)) - 1 {
				i := lo + k
				pairs := (n - 1) / 2
				if n%2 == 0 && i < n/2 {
					pairs++
				}
				terms[k] = float64(pos[4*i+3]) * inverseDistances(eps, pos, i, pairs)
			}
		})
	}
	workers.Wait()
	var sum float64
	for _, t := range terms {
		sum += t
	}
	return -g * sum
}

// inverseDistances returns Σ m[j] / sqrt(|x[j]-x[i]|²+eps²) over the count
// bodies that follow i, modulo the number of bodies.
func inverseDistances(eps float64, pos []float32, i, count int) float64 {
	n := len(pos) / 4
	x, y, z := float64(pos[4*i]), float64(pos[4*i+1]), float64(pos[4*i+2])
	var sum float64
	for j, left := i+1, count; left > 0; j, left = j+1, left-1 {
		if j >= n {
			j -= n
		}
		p := pos[4*j : 4*j+4 : 4*j+4]
		dx, dy, dz := float64(p[0])-x, float64(p[1])-y, float64(p[2])-z
		sum += float64(p[3]) / math.Sqrt(dx*dx+dy*dy+dz*dz+eps*eps)
	}
	return sum
}
