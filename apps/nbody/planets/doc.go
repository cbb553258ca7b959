// Package planets computes where the Sun and the planets are, as initial
// conditions of an N-body run, from Keplerian elements fitted to a JPL
// ephemeris.
//
// # Source
//
// Elements: E. M. Standish, "Keplerian Elements for Approximate Positions of the
// Major Planets", table 1, valid 1800 to 2050; mean ecliptic and equinox of
// J2000, ssd.jpl.nasa.gov/planets/approx_pos.html. Their error is 15 to 600
// seconds of arc, depending on the planet. Masses: the ratios of JPL's ephemeris
// DE405 (Standish, JPL IOM 312.F-98-048, 1998), the planets with their moons.
//
// ../input/solar-j2000.csv is made by ./gen and checked by a test.
package planets

//go:generate go run ./gen -out ../input/solar-j2000.csv
