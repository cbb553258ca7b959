package bodies

import "fmt"

// Units names a system of units.
type Units string

// The unit systems that runs compute in; see the package comment.
const (
	NBody Units = "nbody"
	Solar Units = "solar"
)

// si is accepted in files and converted on reading.
const si Units = "si"

// Constants of the solar unit system. GMSun is the heliocentric gravitational
// constant of JPL's ephemeris DE405 (Standish, JPL IOM 312.F-98-048, 1998); the
// astronomical unit is exact by IAU 2012 resolution B2.
const (
	GMSun      = 1.32712440018e20 // m³/s²
	AU         = 149597870700.0   // m
	DaySeconds = 86400.0

	// gravity is the CODATA 2018 constant of gravitation, m³/(kg s²). It enters
	// only where a file gives masses in kilograms.
	gravity = 6.67430e-11
)

// SolarG is the constant of gravitation in solar units, au³/(solar mass day²):
//
//	G = GMSun · day² / au³
const SolarG = GMSun * DaySeconds * DaySeconds / (AU * AU * AU)

// G returns the constant of gravitation in these units.
func (u Units) G() float64 {
	if u == Solar {
		return SolarG
	}
	return 1
}

// scale says what to multiply numbers of a file in units u with, and the units
// the result is in.
type scale struct {
	mass, length, velocity float64
	units                  Units
}

// scaleOf returns the scale for the units that a file states.
func scaleOf(u Units) (scale, error) {
	switch u {
	case NBody, Solar:
		return scale{1, 1, 1, u}, nil
	case si:
		return scale{gravity / GMSun, 1 / AU, DaySeconds / AU, Solar}, nil
	}
	return scale{}, fmt.Errorf("unknown units %q: want %q, %q or %q", string(u), NBody, Solar, si)
}
