package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
)

// smooth is a field of float64, which compresses by planes and not as it lies.
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
	field := smooth(chunkBytes / 8)
	var k packer
	for _, c := range []struct {
		name   string
		data   []byte
		codec  codec
		filter filter
	}{
		{"random", random(1, 50_000), codecRaw, filterNone},
		{"text", bytes.Repeat([]byte("holdfast "), 5000), codecLZ4, filterNone},
		{"field", field, codecLZ4, filterShuffle},
		{"field with a tail", field[:100_003], codecLZ4, filterShuffle},
		{"one byte", []byte{1}, codecRaw, filterNone},
		{"a few bytes", []byte("abc"), codecRaw, filterNone},
	} {
		t.Run(c.name, func(t *testing.T) {
			ch := chunk{length: uint32(len(c.data))}
			q := bytes.Clone(k.compress(&ch, c.data))
			if ch.codec != c.codec || c.codec != codecRaw && ch.filter != c.filter {
				t.Fatalf("codec %d, filter %d, want %d and %d", ch.codec, ch.filter, c.codec, c.filter)
			}
			if c.codec == codecRaw {
				return
			}
			if len(q) >= len(c.data) {
				t.Errorf("%d bytes became %d", len(c.data), len(q))
			}
			dst, mem := make([]byte, len(c.data)), make([]byte, len(c.data))
			if err := decodeChunk(dst, q, mem, &ch); err != nil || !bytes.Equal(dst, c.data) {
				t.Fatalf("does not come back: %v", err)
			}
			if err := decodeChunk(dst, q[:len(q)/2], mem, &ch); err == nil {
				t.Error("half of it was accepted")
			}
			if err := decodeChunk(make([]byte, len(c.data)+1), q, make([]byte, len(c.data)+1), &ch); err == nil {
				t.Error("another length was accepted")
			}
		})
	}
}

// TestCompressedShard puts and restores a field by planes, and finds every kind of
// damage to it.
func TestCompressedShard(t *testing.T) {
	f := crashfs.New()
	f.MkdirAll("/d")
	s, err := Open(t.Context(), Options{Job: "j", Size: 1, FS: f, pool: testPool,
		Levels: []LevelConfig{{Name: LevelLocal, Dir: "/d", CompressAlways: true}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data := Bytes(smooth(100_000))
	secs := []Section{{Name: "field", Size: int64(len(data)), Source: data}}
	infos := take(t, []*Store{s}, 1, LevelLocal, func(int) []Section { return secs })
	if infos[0].Stored > infos[0].Bytes*9/10 {
		t.Errorf("stored %d of %d bytes", infos[0].Stored, infos[0].Bytes)
	}
	sh := wantShard(t, s, 1, secs)
	if c := sh.shape.chunks[0]; c.filter != filterShuffle || c.width != 8 {
		t.Errorf("chunk 0 is %+v, want it in planes of 8", c)
	}
	file := "/d/" + epochName(1) + "/" + shardName(0)
	for at := int64(shardHeaderLen); at < shardHeaderLen+infos[0].Stored; at += 7919 {
		f.Flip(file, at, 0x10)
		if _, err := fetchAll(t.Context(), s, 1); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d: got %v, want ErrCorrupt", at, err)
		}
		f.Flip(file, at, 0x10)
	}
	back, err := s.Fetch(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	if err := back.Verify(t.Context()); err != nil || back.Epoch() != 1 {
		t.Errorf("epoch %d, %v", back.Epoch(), err)
	}
}

// TestChunkEntriesAreChecked gives each rule of an index entry something that
// breaks it and nothing else.
func TestChunkEntriesAreChecked(t *testing.T) {
	const own, end = Epoch(5), int64(100_000)
	good := chunk{origin: own, off: shardHeaderLen, stored: 1000, length: 1000}
	if reason := good.check(own, end); reason != "" {
		t.Fatalf("a good entry %s", reason)
	}
	for want, change := range map[string]func(c *chunk){
		"refers to a later epoch":       func(c *chunk) { c.origin = own + 1 },
		"has an unknown codec":          func(c *chunk) { c.codec = 3 },
		"has an unknown codec or filte": func(c *chunk) { c.filter = 2 },
		"is raw and its lengths differ": func(c *chunk) { c.stored = 999 },
		"is zero and yet stored":        func(c *chunk) { c.codec = codecZero },
		"is compressed and not smaller": func(c *chunk) { c.codec = codecLZ4 },
		"is shuffled by a width below": func(c *chunk) {
			c.codec, c.stored, c.filter, c.width = codecLZ4, 500, filterShuffle, 1
		},
		"starts in the header":     func(c *chunk) { c.off = shardHeaderLen - 1 },
		"reaches into the index":   func(c *chunk) { c.off = end - 999 },
		"refers to a later epoch ": func(c *chunk) { c.origin = 0 },
	} {
		c := good
		change(&c)
		if reason := c.check(own, end); !strings.Contains(reason, strings.TrimSpace(want)) {
			t.Errorf("%+v: got %q, want %q", c, reason, want)
		}
		x := &shardIndex{epoch: own, rank: 0, size: 1, chunkBytes: chunkBytes,
			sections: []sectionEntry{{name: "s", size: 1000}}, chunks: []chunk{c}}
		if _, err := decodeIndex("f", x.encode(), end); !errors.Is(err, ErrCorrupt) {
			t.Errorf("an index with it: got %v, want ErrCorrupt", err)
		}
	}
}

// TestNewerVersionsAreRefused raises the version of each kind of file. A reader
// says so with both numbers; it does not call it damage, and it does not guess.
func TestNewerVersionsAreRefused(t *testing.T) {
	raise := func(b []byte, at int) []byte {
		n := int(binary.LittleEndian.Uint32(b[at+12:])) + recordExtra
		binary.LittleEndian.PutUint16(b[at+10:], formatVersion+1)
		binary.LittleEndian.PutUint32(b[at+n-4:], crcOf(b[at:at+n-4]))
		return b
	}
	for _, name := range []string{markerName, epochName(1) + "/" + manifestName} {
		w := flipWorld(t)
		file := "/local0/" + name
		b, err := readFile(w.fs, file, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.fs.Remove(file), writeFile(w.fs, file, raise(b, 0))); err != nil {
			t.Fatal(err)
		}
		d := &w.stores[0].levels[0].levelDir
		if name == markerName {
			_, err = d.readMarker()
		} else {
			_, err = d.readManifest(1)
			if err := w.check(1); err != nil {
				t.Errorf("the other level: %v", err)
			}
		}
		var bad *VersionError
		if !errors.As(err, &bad) || bad.Have != 2 || bad.Known != 1 || errors.Is(err, ErrCorrupt) ||
			!strings.Contains(err.Error(), "version 2, this build reads up to 1: use a newer holdfast") {
			t.Errorf("%s: got %v, want a *VersionError", name, err)
		}
	}
}

// TestPlainFiles writes where direct I/O is refused: the same bytes.
func TestPlainFiles(t *testing.T) {
	for _, direct := range []bool{true, false} {
		f := crashfs.New()
		f.SetDirect(direct)
		f.MkdirAll("/d")
		s, err := Open(t.Context(), Options{Job: "j", Size: 1, FS: f, pool: testPool,
			Levels: []LevelConfig{{Name: LevelLocal, Dir: "/d"}}})
		if err != nil {
			t.Fatal(err)
		}
		secs := sectionsOf(0, 1)
		odd := random(9, 5<<20+1)[1:] // memory that is not aligned
		secs = append(secs, Section{Name: "odd memory", Size: int64(len(odd)), Source: Bytes(odd)},
			Section{Name: "read", Size: 3<<20 + 5, Source: onlyReader{bytes.NewReader(random(4, 3<<20+5))}})
		take(t, []*Store{s}, 1, LevelLocal, func(int) []Section { return secs })
		secs[len(secs)-1].Source = Bytes(random(4, 3<<20+5))
		wantShard(t, s, 1, secs)
		if n := findings(t, f, "/d"); n != 0 {
			t.Errorf("direct %v: %d findings", direct, n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// onlyReader hides that the bytes lie in memory.
type onlyReader struct{ *bytes.Reader }

// TestShortSources: a source that does not yield what it said fails the put.
func TestShortSources(t *testing.T) {
	stores := openStores(t, 1, twoLevels(t))
	for name, sec := range map[string]Section{
		"ends early":   {Name: "x", Size: 100, Source: onlyReader{bytes.NewReader(make([]byte, 99))}},
		"two sections": {Name: "step", Size: 1, Source: Bytes{1}},
		"long name":    {Name: strings.Repeat("n", 1<<16), Size: 1, Source: Bytes{1}},
	} {
		secs := append(sectionsOf(0, 1)[:1:1], sec)
		if _, err := stores[0].Put(t.Context(), 1, LevelLocal, secs); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := stores[0].Put(t.Context(), 0, LevelLocal, nil); err == nil {
		t.Error("epoch 0 was accepted")
	}
	left := fmt.Sprint(stores[0].levels[0].epochs())
	if left != "[1] <nil>" && left != "[] <nil>" {
		t.Errorf("epochs %s", left)
	}
}
