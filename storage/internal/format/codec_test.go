package format

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// random returns n reproducible bytes that do not compress.
func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(b)
	return b
}

// smooth returns a field of float64, which compresses by planes and not as it lies.
func smooth(n int) []byte {
	b := make([]byte, 0, 8*n)
	for i := range n {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(1+math.Sin(float64(i)/5000)))
	}
	return b
}

func TestShuffleRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 2, 7, 8, 9, 63, 64, 65, 1000, 4099} {
		src := random(uint64(n), n)
		for _, width := range []int{2, 3, 4, 8, 16, 255} {
			mid, back := make([]byte, n), make([]byte, n)
			shuffle(mid, src, width)
			unshuffle(back, mid, width)
			if !bytes.Equal(back, src) {
				t.Errorf("%d bytes by %d do not come back", n, width)
			}
		}
	}
	planes := make([]byte, 11)
	shuffle(planes, []byte("abcdABCD123"), 4)
	if string(planes) != "aAbBcCdD123" {
		t.Errorf("got %q, want whole planes and then the rest", planes)
	}
}

// TestCodecsRoundTrip compresses chunks of all kinds, and refuses what was made
// of them by others.
func TestCodecsRoundTrip(t *testing.T) {
	field := smooth(ChunkBytes / 8)
	var k Compressor
	for _, c := range []struct {
		name   string
		data   []byte
		codec  codec
		filter filter
	}{
		{"random", random(1, 50_000), CodecRaw, filterNone},
		{"text", bytes.Repeat([]byte("holdfast "), 5000), CodecLZ4, filterNone},
		{"field", field, CodecLZ4, FilterShuffle},
		{"field with a tail", field[:100_003], CodecLZ4, FilterShuffle},
		{"one byte", []byte{1}, CodecRaw, filterNone},
		{"a few bytes", []byte("abc"), CodecRaw, filterNone},
	} {
		t.Run(c.name, func(t *testing.T) {
			ch := Chunk{Length: uint32(len(c.data))}
			q := bytes.Clone(k.Compress(&ch, c.data))
			if ch.Codec != c.codec || c.codec != CodecRaw && ch.Filter != c.filter {
				t.Fatalf("codec %d, filter %d, want %d and %d", ch.Codec, ch.Filter, c.codec, c.filter)
			}
			if c.codec == CodecRaw {
				return
			}
			if len(q) >= len(c.data) {
				t.Errorf("%d bytes became %d", len(c.data), len(q))
			}
			dst, mem := make([]byte, len(c.data)), make([]byte, len(c.data))
			if err := DecodeChunk(dst, q, mem, &ch); err != nil || !bytes.Equal(dst, c.data) {
				t.Fatalf("does not come back: %v", err)
			}
			if err := DecodeChunk(dst, q[:len(q)/2], mem, &ch); err == nil {
				t.Error("half of it was accepted")
			}
			if err := DecodeChunk(make([]byte, len(c.data)+1), q, make([]byte, len(c.data)+1), &ch); err == nil {
				t.Error("another length was accepted")
			}
		})
	}
}
