package bodies

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// maxRadius cuts off the sphere, in units of its scale length. The model reaches to infinity, and
// 1.5 % of the mass lies beyond.
const maxRadius = 10

// Plummer returns a Plummer sphere of n equal masses in virial equilibrium, in
// units in which G, the total mass and the virial radius are 1 and the energy is
// about -1/4 (Hénon units). Its density is
//
//	ρ(r) = 3/(4π a³) (1 + r²/a²)^(-5/2),  a = 3π/16
//
// sampled as in Aarseth, Hénon and Wielen, A&A 37 (1974) 183: the radius from
// the inverse of the mass profile, the speed by rejection from
// g(q) = q² (1-q²)^(7/2), q being the fraction of the escape speed. The centre of
// mass is put to rest in the origin.
//
// The numbers come from PCG-DXSM (math/rand/v2.NewPCG) with the seed as first
// and the golden-ratio constant as second word; a uniform number is the upper 53
// bits divided by 2^53. On one architecture a seed always gives the same bits.
func Plummer(n int, seed uint64) (*System, error) {
	if n < 2 {
		return nil, fmt.Errorf("plummer sphere of %d bodies: want at least 2", n)
	}
	u := uniform{rand.NewPCG(seed, 0x9e3779b97f4a7c15)}
	s := New(n)
	length := 3 * math.Pi / 16
	velocity := math.Sqrt(16 / (3 * math.Pi))
	for i := range n {
		r := u.radius()
		v := u.fraction() * math.Sqrt2 * math.Pow(1+r*r, -0.25)
		s.Set(i, 1/float64(n), u.direction(r*length), u.direction(v*velocity))
	}
	s.centre()
	return s, nil
}

// A uniform source of numbers in [0, 1).
type uniform struct{ pcg *rand.PCG }

func (u uniform) next() float64 { return float64(u.pcg.Uint64()>>11) / (1 << 53) }

// radius returns a distance from the centre in units of the scale length: the
// inverse of the enclosed mass m(r) = r³ (1+r²)^(-3/2).
func (u uniform) radius() float64 {
	for {
		m := u.next()
		if m == 0 {
			continue
		}
		if r := 1 / math.Sqrt(math.Pow(m, -2.0/3)-1); r <= maxRadius {
			return r
		}
	}
}

// fraction returns a speed as fraction of the escape speed. The maximum of g is
// 0.0922, at q² = 2/9, so 0.1 covers it.
func (u uniform) fraction() float64 {
	for {
		q, y := u.next(), 0.1*u.next()
		if y < q*q*math.Pow(1-q*q, 3.5) {
			return q
		}
	}
}

// direction returns a vector of the given length, all directions being equally
// likely.
func (u uniform) direction(length float64) [3]float64 {
	z := 2*u.next() - 1
	sin, cos := math.Sincos(2 * math.Pi * u.next())
	rho := math.Sqrt(1 - z*z)
	return [3]float64{length * rho * cos, length * rho * sin, length * z}
}
