// Package chunkhash hashes chunks of device memory, to find those that have not changed. A device
// computes the 128 bits at the speed of its memory. The host can compute them too, so that either
// checks the other.
//
// # The function
//
// It is the NH of UMAC (Black, Halevi, Krawczyk, Krovetz, Rogaway, CRYPTO '99; RFC 4418), on two
// floors. A chunk is cut into units of 16 bytes, and unit u belongs to lane u mod 256, row u div
// 256. Each lane adds up, modulo 2^64, for the words m0 to m3 of its unit in row r,
//
//	(m0 + k[4r+2p]) (m1 + k[4r+2p+1]) + (m2 + k[4r+2p+2]) (m3 + k[4r+2p+3])
//
// with the sums in brackets modulo 2^32, and does so for p = 0 to 3 with the key moved by two
// words. The 8 words of the 256 lanes, in order, are hashed the same way with another key: four
// numbers of 64 bits. The host folds those to 128 bits with xxh3. The end of a chunk is filled with
// zeros to a whole row: only hashes of chunks of one length are compared.
//
// # Why it is good enough
//
// The key is random and drawn once in each process, so the bytes of a program do not depend on it.
// Whatever two different chunks of one length hold, a floor gives both the same numbers with
// probability 2^-128 at most (2^-32 for each p: the paper's theorem on keys that are moved, after
// Toeplitz); no pattern in the data, such as nearly constant chunks or single flipped bits, makes
// that worse. With the second floor and the fold that is below 2^-126. A job that compares a million
// chunks a second for a year takes two for the same with a probability below 2^-81.
package chunkhash

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/zeebo/xxh3"
)

// Bytes is the length of a chunk; a shorter one is hashed as well.
const Bytes = 256 << 10

// The kernel: one work-group of Lanes items for each chunk.
const (
	Kernel = "holdfast_chunk_hash"
	Lanes  = 256

	unit      = 16
	row       = Lanes * unit
	rows      = Bytes / row
	firstKey  = 4*rows + 8 // words of the first floor's key; two are there to keep the following fields aligned
	words     = 8 * Lanes  // of the second floor's message
	secondKey = words + 6  // words of its key
	keyWords  = firstKey + secondKey
	results   = 4
)

// RawBytes is the length of the kernel's result for each chunk.
const RawBytes = 8 * results

// Sum is the hash of a chunk. The zero Sum belongs to none: it says that nothing is known.
type Sum [16]byte

// Key makes the hash of a process differ from that of others.
type Key [keyWords]uint32

// NewKey draws a key.
func NewKey(seed [32]byte) *Key {
	r := rand.NewChaCha8(seed)
	var k Key
	for i := range k {
		k[i] = uint32(r.Uint64())
	}
	return &k
}

// Encode returns the key as the kernel takes it.
func (k *Key) Encode() []byte {
	b := make([]byte, 4*len(k))
	for i, w := range k {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return b
}

// Raw returns the kernel's result for a chunk of at most Bytes bytes.
func (k *Key) Raw(p []byte) (h [results]uint64) {
	var lanes [words]uint32
	for t := range Lanes {
		var s [results]uint64
		for r := 0; r*row < len(p); r++ {
			var m [4]uint32
			read(&m, p, r*row+t*unit)
			addUp(&s, &m, k[4*r:])
		}
		for p, v := range s {
			lanes[8*t+2*p], lanes[8*t+2*p+1] = uint32(v), uint32(v>>32)
		}
	}
	for i := 0; i < words; i += 4 {
		addUp(&h, (*[4]uint32)(lanes[i:]), k[firstKey+i:])
	}
	return h
}

// addUp adds the hash of four words of a message with their part of a key.
func addUp(s *[results]uint64, m *[4]uint32, k []uint32) {
	k = k[:10]
	for p := range s {
		s[p] += uint64(m[0]+k[2*p])*uint64(m[1]+k[2*p+1]) + uint64(m[2]+k[2*p+2])*uint64(m[3]+k[2*p+3])
	}
}

// read gives the four words at an offset, zeros beyond the end.
func read(m *[4]uint32, p []byte, at int) {
	var b [unit]byte
	if at+unit <= len(p) {
		b = [unit]byte(p[at:])
	} else if at < len(p) {
		copy(b[:], p[at:])
	}
	for i := range m {
		m[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
}

// Fold makes a Sum of the kernel's result. It is never zero.
func Fold(raw [results]uint64) Sum {
	var b [RawBytes]byte
	for i, v := range raw {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	h := xxh3.Hash128(b[:])
	if h.Hi|h.Lo == 0 {
		h.Lo = 1
	}
	return h.Bytes()
}

// Of returns the hash of a chunk of at most Bytes bytes, by the host.
func (k *Key) Of(p []byte) Sum { return Fold(k.Raw(p)) }

// Sums returns the sums of chunks that follow each other, from the kernel's results.
func Sums(raw []byte) []Sum {
	sums := make([]Sum, len(raw)/RawBytes)
	for i := range sums {
		var r [results]uint64
		for j := range r {
			r[j] = binary.NativeEndian.Uint64(raw[RawBytes*i+8*j:])
		}
		sums[i] = Fold(r)
	}
	return sums
}
