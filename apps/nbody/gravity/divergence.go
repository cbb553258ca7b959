package gravity

import "math"

// unitRoundoff is that of float32, 2^-24.
const unitRoundoff = 1.0 / (1 << 24)

// termRoundings bounds the rounding of one term of the sum over bodies on a
// device that follows the OpenCL specification (section 7.4), fused or not: a
// difference; three squares and three sums, which go under the root and are then
// cubed (5/2 · 3 of the relative error of the sum); an inverse square root of
// 2 ulp, cubed; and four products. An ulp is two unit roundoffs.
const termRoundings = 2 + 7.5 + 3*2*2 + 4

// Divergence bounds how far the same body may be apart after the given number
// of leapfrog steps, between two devices that start from the same bits in pos
// and compute in float32 with different but conforming rounding:
//
//	|Δx| <= 2 (δ/λ²) (cosh(λT) - 1) + 2 u X steps cosh(λT),   T = steps dt
//
// δ bounds the rounding error of one acceleration: n terms summed one after the other, each off by k = termRoundings,
// give (n + k) u Σ_j |term_j|, with u the unit roundoff. λ² bounds the gradient of the acceleration, 2 G Σ_j m[j]
// (|x[j]-x[i]|²+eps²)^(-3/2): two solutions part at most like d″ = λ² d + 2δ. The second part is the rounding of
// positions (at most X) and velocities in every step, spread in the same way. δ, λ and X are the largest over all
// bodies at the start; the result doubles δ and λ² for changes on the way, so the run must be short against the time in
// which the system changes its shape.
//
// It needs all pairs in float64: n² operations.
func Divergence(g, eps float64, pos []float32, steps int, dt float64) float64 {
	var strength, gradient, extent float64
	for i := range len(pos) / 4 {
		s, l := sums(eps, pos, i)
		strength = math.Max(strength, g*s)
		gradient = math.Max(gradient, 2*g*l)
		for _, x := range pos[4*i : 4*i+3] {
			extent = math.Max(extent, math.Abs(float64(x)))
		}
	}
	delta := 2 * (float64(len(pos)/4) + termRoundings) * unitRoundoff * strength
	lambda2 := 2 * gradient
	lt := math.Sqrt(lambda2) * float64(steps) * dt
	return 2*delta/lambda2*(math.Cosh(lt)-1) + 2*unitRoundoff*extent*float64(steps)*math.Cosh(lt)
}

// sums returns Σ_j m[j] / d² and Σ_j m[j] / d³ with d² = |x[j]-x[i]|² + eps².
func sums(eps float64, pos []float32, i int) (second, third float64) {
	x, y, z := float64(pos[4*i]), float64(pos[4*i+1]), float64(pos[4*i+2])
	for j := range len(pos) / 4 {
		p := pos[4*j : 4*j+4 : 4*j+4]
		dx, dy, dz := float64(p[0])-x, float64(p[1])-y, float64(p[2])-z
		if d2 := dx*dx + dy*dy + dz*dz + eps*eps; d2 > 0 && i != j {
			second += float64(p[3]) / d2
			third += float64(p[3]) / (d2 * math.Sqrt(d2))
		}
	}
	return second, third
}
