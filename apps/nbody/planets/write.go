package planets

import (
	"fmt"
	"io"
)

// Write writes the Sun and the planets at a Julian date as a file of bodies that
// names its source.
func Write(w io.Writer, julianDate float64) error {
	return System(julianDate).Write(w,
		"mass in solar masses, x y z in au, vx vy vz in au/day",
		fmt.Sprintf("Sun and planets at JD %.1f TT, ecliptic and equinox of J2000, relative to the centre of mass",
			julianDate),
		"orbits: E. M. Standish, Keplerian Elements for Approximate Positions of the Major Planets, table 1,",
		"  https://ssd.jpl.nasa.gov/planets/approx_pos.html; masses: JPL DE405; made by apps/nbody/planets/gen",
	)
}
