package format

import (
	"fmt"

	"github.com/pierrec/lz4/v4"
)

// Compressor compresses chunks. It belongs to one goroutine.
type Compressor struct {
	lz       lz4.Compressor
	shuffled []byte
	out      []byte
}

// Compress returns the stored form of p and fills codec, filter and width, or
// returns nil when storing p as it is takes no more room. The result is valid
// until the next call.
func (k *Compressor) Compress(c *Chunk, p []byte) []byte {
	if len(k.out) < len(p) {
		k.out, k.shuffled = make([]byte, ChunkBytes), make([]byte, ChunkBytes)
	}
	best := k.try(p, len(p))
	c.Codec, c.Filter, c.Width = CodecLZ4, filterNone, 0
	if best == nil || len(best) > len(p)*3/4 {
		// Numbers share their high bytes with their neighbours: by planes
		// they compress if they do not as they lie.
		const width = 8
		shuffle(k.shuffled[:len(p)], p, width)
		limit := len(p)
		if best != nil {
			limit = len(best)
		}
		if q := k.try(k.shuffled[:len(p)], limit); q != nil {
			c.Filter, c.Width = FilterShuffle, width
			return q
		}
		if best != nil {
			best = k.try(p, len(p)) // the second try overwrote it
		}
	}
	if best == nil {
		c.Codec = CodecRaw
	}
	return best
}

// try compresses p to less than limit bytes, or returns nil.
func (k *Compressor) try(p []byte, limit int) []byte {
	n, err := k.lz.CompressBlock(p, k.out[:limit-1])
	if err != nil || n == 0 || n >= limit {
		return nil
	}
	return k.out[:n]
}

// DecodeChunk turns stored bytes into dst, which has the chunk's length.
func DecodeChunk(dst, stored, scratch []byte, c *Chunk) error {
	target := dst
	if c.Filter == FilterShuffle {
		target = scratch[:len(dst)]
	}
	n, err := lz4.UncompressBlock(stored, target)
	if err != nil {
		return fmt.Errorf("lz4 block: %w", err)
	}
	if n != len(dst) {
		return fmt.Errorf("lz4 block holds %d bytes instead of %d", n, len(dst))
	}
	if c.Filter == FilterShuffle {
		unshuffle(dst, target, int(c.Width))
	}
	return nil
}

// shuffle writes first all first bytes of the elements of src, then all second
// ones and so on. Bytes beyond the last whole element are left at the end.
func shuffle(dst, src []byte, width int) {
	n := len(src) / width
	for b := range width {
		plane := dst[b*n : (b+1)*n]
		for i := range plane {
			plane[i] = src[i*width+b]
		}
	}
	copy(dst[n*width:], src[n*width:])
}

// unshuffle reverses shuffle.
func unshuffle(dst, src []byte, width int) {
	n := len(src) / width
	for b := range width {
		plane := src[b*n : (b+1)*n]
		for i, v := range plane {
			dst[i*width+b] = v
		}
	}
	copy(dst[n*width:], src[n*width:])
}
