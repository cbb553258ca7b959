package format

import (
	"errors"
	"strings"
	"testing"
)

// TestChunkEntriesAreChecked gives each rule of an index entry something that
// breaks it and nothing else.
func TestChunkEntriesAreChecked(t *testing.T) {
	const own, end = Epoch(5), int64(100_000)
	good := Chunk{Origin: own, Off: HeaderLen, Stored: 1000, Length: 1000}
	if reason := good.check(own, end); reason != "" {
		t.Fatalf("a good entry %s", reason)
	}
	for want, change := range map[string]func(c *Chunk){
		"refers to a later epoch":       func(c *Chunk) { c.Origin = own + 1 },
		"has an unknown codec":          func(c *Chunk) { c.Codec = 3 },
		"has an unknown codec or filte": func(c *Chunk) { c.Filter = 2 },
		"is raw and its lengths differ": func(c *Chunk) { c.Stored = 999 },
		"is zero and yet stored":        func(c *Chunk) { c.Codec = CodecZero },
		"is compressed and not smaller": func(c *Chunk) { c.Codec = CodecLZ4 },
		"is shuffled by a width below": func(c *Chunk) {
			c.Codec, c.Stored, c.Filter, c.Width = CodecLZ4, 500, FilterShuffle, 1
		},
		"starts in the header":     func(c *Chunk) { c.Off = HeaderLen - 1 },
		"reaches into the index":   func(c *Chunk) { c.Off = end - 999 },
		"refers to a later epoch ": func(c *Chunk) { c.Origin = 0 },
	} {
		c := good
		change(&c)
		if reason := c.check(own, end); !strings.Contains(reason, strings.TrimSpace(want)) {
			t.Errorf("%+v: got %q, want %q", c, reason, want)
		}
		x := &Index{Epoch: own, Rank: 0, Size: 1, ChunkBytes: ChunkBytes,
			Sections: []Section{{Name: "s", Size: 1000}}, Chunks: []Chunk{c}}
		if _, err := DecodeIndex("f", x.Encode(), end); !errors.Is(err, ErrCorrupt) {
			t.Errorf("an index with it: got %v, want ErrCorrupt", err)
		}
	}
}
