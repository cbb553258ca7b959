package bodies

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
)

// A System is a set of bodies.
type System struct {
	// Pos holds x, y, z and the mass of each body, Vel its velocity and a zero:
	// both are 4 × Len() numbers, the layout of float4 on the device.
	Pos, Vel []float32
}

// New returns a System of n bodies, all numbers zero.
func New(n int) *System {
	return &System{Pos: make([]float32, 4*n), Vel: make([]float32, 4*n)}
}

// Len returns the number of bodies.
func (s *System) Len() int { return len(s.Pos) / 4 }

// Mass returns the mass of body i.
func (s *System) Mass(i int) float32 { return s.Pos[4*i+3] }

// NotFinite returns the first body with a number that is not finite, or -1.
func (s *System) NotFinite() int {
	for i := range s.Pos {
		// A difference of 0 means finite: of NaN and infinities it is NaN.
		if s.Pos[i]-s.Pos[i] != 0 || s.Vel[i]-s.Vel[i] != 0 {
			return i / 4
		}
	}
	return -1
}

// Set sets body i. The numbers are rounded to float32.
func (s *System) Set(i int, mass float64, pos, vel [3]float64) {
	for k := range 3 {
		s.Pos[4*i+k] = float32(pos[k])
		s.Vel[4*i+k] = float32(vel[k])
	}
	s.Pos[4*i+3] = float32(mass)
}

// Digest returns the SHA-256 of the system in hexadecimal: per body, in order,
// x, y, z, mass, vx, vy, vz as little-endian float32.
func (s *System) Digest() string {
	h := sha256.New()
	var rec [7 * 4]byte
	for i := range s.Len() {
		for k, v := range s.Pos[4*i : 4*i+4] {
			binary.LittleEndian.PutUint32(rec[4*k:], math.Float32bits(v))
		}
		for k, v := range s.Vel[4*i : 4*i+3] {
			binary.LittleEndian.PutUint32(rec[16+4*k:], math.Float32bits(v))
		}
		h.Write(rec[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// centre moves the system so that its centre of mass is at rest in the origin.
// It sums in float64 and rounds once per number.
func (s *System) centre() {
	var mass float64
	var pos, vel [3]float64
	for i := range s.Len() {
		m := float64(s.Mass(i))
		mass += m
		for k := range 3 {
			pos[k] += m * float64(s.Pos[4*i+k])
			vel[k] += m * float64(s.Vel[4*i+k])
		}
	}
	for i := range s.Len() {
		for k := range 3 {
			s.Pos[4*i+k] = float32(float64(s.Pos[4*i+k]) - pos[k]/mass)
			s.Vel[4*i+k] = float32(float64(s.Vel[4*i+k]) - vel[k]/mass)
		}
	}
}
