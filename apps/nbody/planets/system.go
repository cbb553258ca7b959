package planets

import "github.com/holdfast-hpc/holdfast/apps/nbody/bodies"

// System returns the Sun and the eight planets at a Julian date in solar units,
// relative to their centre of mass.
func System(julianDate float64) *bodies.System {
	n := len(Planets) + 1
	mass := make([]float64, n)
	pos, vel := make([][3]float64, n), make([][3]float64, n)
	mass[0] = 1
	for i, p := range Planets {
		mass[i+1] = 1 / p.SunRatio
		pos[i+1], vel[i+1] = p.At(julianDate).State(bodies.SolarG * (1 + mass[i+1]))
	}
	toBarycentre(mass, pos)
	toBarycentre(mass, vel)

	s := bodies.New(n, bodies.Solar)
	s.Names = []string{"Sun"}
	s.Set(0, mass[0], pos[0], vel[0])
	for i, p := range Planets {
		s.Names = append(s.Names, p.Name)
		s.Set(i+1, mass[i+1], pos[i+1], vel[i+1])
	}
	return s
}

// toBarycentre subtracts the mass-weighted mean from the vectors.
func toBarycentre(mass []float64, v [][3]float64) {
	var total float64
	var sum [3]float64
	for i, m := range mass {
		total += m
		for k := range sum {
			sum[k] += m * v[i][k]
		}
	}
	for i := range v {
		for k := range sum {
			v[i][k] -= sum[k] / total
		}
	}
}
