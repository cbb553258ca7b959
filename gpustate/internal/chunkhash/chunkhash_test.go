package chunkhash

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
)

func testKey() *Key { return NewKey([32]byte{1, 2, 3}) }

// obvious returns the function of the package comment, word by word.
func obvious(k *Key, p []byte) (h [results]uint64) {
	for len(p)%row != 0 {
		p = append(p[:len(p):len(p)], 0)
	}
	word := func(b []byte, i int) uint32 {
		return uint32(b[4*i]) | uint32(b[4*i+1])<<8 | uint32(b[4*i+2])<<16 | uint32(b[4*i+3])<<24
	}
	nh := func(m []uint32, key []uint32, p int) (s uint64) {
		for i := 0; i < len(m); i += 2 {
			s += uint64(m[i]+key[i+2*p]) * uint64(m[i+1]+key[i+1+2*p])
		}
		return s
	}
	var second []uint32
	for lane := range Lanes {
		var m []uint32
		for u := lane; 16*u < len(p); u += Lanes {
			for i := range 4 {
				m = append(m, word(p[16*u:], i))
			}
		}
		for p := range results {
			s := nh(m, k[:firstKey], p)
			second = append(second, uint32(s), uint32(s>>32))
		}
	}
	for p := range h {
		h[p] = nh(second, k[firstKey:], p)
	}
	return h
}

func TestFunction(t *testing.T) {
	k := testKey()
	r := rand.NewChaCha8([32]byte{9})
	for _, n := range []int{1, 15, 16, 17, row - 1, row, row + 1, Bytes - 5, Bytes} {
		p := make([]byte, n)
		_, _ = r.Read(p)
		if got, want := k.Raw(p), obvious(k, p); got != want {
			t.Errorf("%d bytes: got %x, want %x", n, got, want)
		}
		dst := make([]byte, 3*RawBytes)
		for j, v := range k.Raw(p) {
			binary.NativeEndian.PutUint64(dst[2*RawBytes+8*j:], v)
		}
		if got := Sums(dst)[2]; got != k.Of(p) {
			t.Errorf("%d bytes: got %x from what a kernel writes, %x from the bytes", n, got, k.Of(p))
		}
	}
	if k.Of(nil) == (Sum{}) || k.Of(make([]byte, Bytes)) == (Sum{}) {
		t.Error("a chunk has the hash that says nothing")
	}
}

// seen reports a chunk whose hash another one has, folded or not, or half of the numbers of.
type seen struct {
	t     *testing.T
	sums  map[Sum]string
	raw   map[[results]uint64]string
	parts [results]map[uint64]bool
	equal int
}

func newSeen(t *testing.T) *seen {
	s := &seen{t: t, sums: map[Sum]string{}, raw: map[[results]uint64]string{}}
	for i := range s.parts {
		s.parts[i] = map[uint64]bool{}
	}
	return s
}

func (s *seen) add(raw [results]uint64, what string) {
	s.t.Helper()
	sum := Fold(raw)
	if other, ok := s.sums[sum]; ok {
		s.t.Errorf("%s and %s have one hash", what, other)
	}
	if other, ok := s.raw[raw]; ok {
		s.t.Errorf("%s and %s have the same numbers", what, other)
	}
	for i, v := range raw {
		if s.parts[i][v] {
			s.equal++ // one of four: 2^-32 for a pair
		}
		s.parts[i][v] = true
	}
	s.sums[sum], s.raw[raw] = what, what
}

// TestStructured hashes chunks that differ in little: near constants, single flipped bits, swapped
// and moved parts, counters. None may share a hash.
func TestStructured(t *testing.T) {
	k := testKey()
	s := newSeen(t)
	p := make([]byte, Bytes)
	fill := func(b byte) {
		for i := range p {
			p[i] = b
		}
	}
	for _, b := range []byte{0, 0x80, 0xff} {
		fill(b)
		s.add(k.Raw(p), "constant")
		for i := 0; i < Bytes; i += 16411 { // every byte of a word, every lane, every row at some time
			p[i]++
			s.add(k.Raw(p), "constant but for a byte")
			p[i] = b
		}
		for i := range 64 { // rows swapped
			p[i*row+i] += 3
			s.add(k.Raw(p), "constant but for a byte of a row")
			p[i*row+i] = b
		}
	}
	fill(0)
	for n := range uint32(50) { // counters and their negatives
		for i := 0; i < Bytes; i += 4 {
			v := n * uint32(i+1)
			p[i], p[i+1], p[i+2], p[i+3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
		}
		if n > 0 {
			s.add(k.Raw(p), "multiples")
		}
	}
	for i := range p {
		p[i] = byte(i / row)
	}
	s.add(k.Raw(p), "rows")
	for i := 1; i < rows; i++ { // two rows exchanged
		q := append([]byte(nil), p...)
		copy(q, p[i*row:(i+1)*row])
		copy(q[i*row:], p[:row])
		s.add(k.Raw(q), "rows exchanged")
	}
	if s.equal > 0 { // some 10^6 pairs, four numbers each: expected 0.001
		t.Errorf("%d of the four numbers of a chunk are those of another", s.equal)
	}
}

// TestFlippedBits flips every bit of a small chunk, and bits everywhere in a whole one: no hash
// comes twice, and each flip changes about half of the 128 bits.
func TestFlippedBits(t *testing.T) {
	k := testKey()
	for _, c := range []struct{ bytes, step int }{{row, 5}, {Bytes, 12007}} {
		s := newSeen(t)
		p := make([]byte, c.bytes)
		was := k.Of(p)
		s.add(k.Raw(p), "zero")
		least, most, sum, n := 128, 0, 0, 0
		for bit := 0; bit < 8*c.bytes; bit += c.step {
			p[bit/8] ^= 1 << (bit % 8)
			raw := k.Raw(p)
			s.add(raw, "a flipped bit")
			p[bit/8] ^= 1 << (bit % 8)
			now, changed := Fold(raw), 0
			for i := range now {
				changed += bits.OnesCount8(now[i] ^ was[i])
			}
			least, most = min(least, changed), max(most, changed)
			sum, n = sum+changed, n+1
		}
		// 128 fair coins: 64 on average, sigma 5.7; in 30,000 tries 6 sigma come once in 10^4 runs.
		// The mean of 175 tries has sigma 0.43.
		if mean := float64(sum) / float64(n); mean < 62 || mean > 66 || least < 64-34 || most > 64+34 {
			t.Errorf("%d bytes: a flipped bit changes %d to %d bits, %.2f on average", c.bytes, least, most,
				mean)
		}
	}
}

// TestKeysDiffer: which chunks share numbers depends on the key, so it must not be the same.
func TestKeysDiffer(t *testing.T) {
	p := make([]byte, 100)
	if testKey().Of(p) == NewKey([32]byte{1, 2, 4}).Of(p) {
		t.Error("two keys give one hash")
	}
}

// TestPTXIsCurrent: the PTX says of which source it was made.
func TestPTXIsCurrent(t *testing.T) {
	if sum := fmt.Sprintf("// %x is", sha256.Sum256([]byte(CUDA))); !strings.HasPrefix(string(PTX), sum) {
		t.Errorf("chunkhash.cu is %s another one than chunkhash.ptx was made of; see sources.go", sum)
	}
}

func BenchmarkHost(b *testing.B) {
	k, p := testKey(), make([]byte, Bytes)
	b.SetBytes(Bytes)
	for range b.N {
		k.Raw(p)
	}
}
