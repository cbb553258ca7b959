package planets

import "math"

const degree = math.Pi / 180

// State returns the heliocentric position (au) and velocity (au/day) on the
// orbit with elements e, in the ecliptic of the elements. mu is the
// gravitational parameter of the Sun and the planet together, G (M+m), in
// au³/day².
//
// With the mean anomaly M = L - ϖ and the eccentric anomaly E from Kepler's
// equation M = E - e sin E, the position in the plane of the orbit is
//
//	x' = a (cos E - e),  y' = a sqrt(1-e²) sin E
//
// and the velocity follows from dE/dt = sqrt(mu/a³) / (1 - e cos E). Three
// rotations, by the argument of the perihelion ω = ϖ - Ω, the inclination I and
// the node Ω, lead to the ecliptic.
func (e Elements) State(mu float64) (pos, vel [3]float64) {
	a, ecc := e.SemiMajor, e.Eccentricity
	big := EccentricAnomaly(math.Remainder(e.MeanLongitude-e.Perihelion, 360)*degree, ecc)
	sin, cos := math.Sincos(big)
	b := a * math.Sqrt(1-ecc*ecc)
	rate := math.Sqrt(mu/(a*a*a)) / (1 - ecc*cos)
	pos = e.rotate(a*(cos-ecc), b*sin)
	vel = e.rotate(-a*sin*rate, b*cos*rate)
	return pos, vel
}

// rotate turns a vector in the plane of the orbit into the ecliptic.
func (e Elements) rotate(x, y float64) [3]float64 {
	so, co := math.Sincos((e.Perihelion - e.Node) * degree)
	sn, cn := math.Sincos(e.Node * degree)
	si, ci := math.Sincos(e.Inclination * degree)
	return [3]float64{
		(co*cn-so*sn*ci)*x + (-so*cn-co*sn*ci)*y,
		(co*sn+so*cn*ci)*x + (-so*sn+co*cn*ci)*y,
		so*si*x + co*si*y,
	}
}

// EccentricAnomaly solves Kepler's equation m = E - ecc sin E for E by Newton's
// method. m is in radians, 0 <= ecc < 1.
func EccentricAnomaly(m, ecc float64) float64 {
	e := m + ecc*math.Sin(m)
	for range 50 {
		d := (e - ecc*math.Sin(e) - m) / (1 - ecc*math.Cos(e))
		e -= d
		if math.Abs(d) < 1e-15 {
			break
		}
	}
	return e
}
