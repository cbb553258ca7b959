package elf

import (
	"bytes"
	stdelf "debug/elf"
	"os"
	"slices"
	"testing"
)

// TestAgainstTheStandardLibrary compares what both read of this test's executable, and of a small file.
func TestAgainstTheStandardLibrary(t *testing.T) {
	image, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range [][]byte{image, small()} {
		got, err := Read(bytes.NewReader(image))
		if err != nil {
			t.Fatal(err)
		}
		want, err := stdelf.NewFile(bytes.NewReader(image))
		if err != nil {
			t.Fatal(err)
		}
		compare(t, got, want)
	}
}

func compare(t *testing.T, got *File, want *stdelf.File) {
	t.Helper()
	if len(got.Sections) != len(want.Sections) {
		t.Fatalf("got %d sections, want %d", len(got.Sections), len(want.Sections))
	}
	for i, w := range want.Sections {
		g := &got.Sections[i]
		if g.Name != w.Name {
			t.Errorf("section %d: got %q, want %q", i, g.Name, w.Name)
		}
		if w.Type == stdelf.SHT_NOBITS || w.Flags&stdelf.SHF_COMPRESSED != 0 {
			continue
		}
		data, err := got.Data(g)
		if wantData, werr := w.Data(); err != nil || werr != nil || !bytes.Equal(data, wantData) {
			t.Errorf("section %s: got %d bytes, %v; want %d, %v", g.Name, len(data), err, len(wantData), werr)
		}
	}
	needed, err := got.Needed()
	wantNeeded, werr := want.ImportedLibraries()
	if err != nil && len(wantNeeded) > 0 || !slices.Equal(needed, wantNeeded) {
		t.Errorf("libraries: got %v, %v; want %v, %v", needed, err, wantNeeded, werr)
	}
	symbols, err := got.Symbols()
	wantSymbols, werr := want.Symbols()
	if (err != nil) != (werr != nil) || len(symbols) != len(wantSymbols) {
		t.Fatalf("got %d symbols, %v; want %d, %v", len(symbols), err, len(wantSymbols), werr)
	}
	for i, w := range wantSymbols {
		g := symbols[i]
		isSection := stdelf.ST_TYPE(w.Info) == stdelf.STT_SECTION
		if g.Name != w.Name || g.Section != int(w.Section) || g.IsSection != isSection {
			t.Fatalf("symbol %d: got %+v, want %+v", i, g, w)
		}
	}
}

// small returns a file of four sections: none, symbols, texts, and dynamic entries.
func small() []byte {
	b := make([]byte, headerBytes)
	copy(b, "\x7fELF\x02\x01\x01")
	texts := []byte("\x00symbols\x00texts\x00libmpi.so.40\x00")
	symbols := make([]byte, 2*symbolBytes)
	le.PutUint32(symbols[symbolBytes:], 1)
	le.PutUint16(symbols[symbolBytes+6:], 2)
	dynamic := make([]byte, 2*dynamicBytes)
	le.PutUint64(dynamic, tagNeeded)
	le.PutUint64(dynamic[8:], 15)
	table := make([]byte, headerBytes)
	for _, s := range []struct {
		name, kind, link uint32
		each             uint64
		data             []byte
	}{{1, kindSymbols, 2, symbolBytes, symbols}, {9, 3, 0, 0, texts}, {0, kindDynamic, 2, dynamicBytes, dynamic}} {
		h := make([]byte, headerBytes)
		le.PutUint32(h, s.name)
		le.PutUint32(h[4:], s.kind)
		le.PutUint64(h[24:], uint64(len(b)))
		le.PutUint64(h[32:], uint64(len(s.data)))
		le.PutUint64(h[56:], s.each)
		le.PutUint32(h[40:], s.link)
		b, table = append(b, s.data...), append(table, h...)
	}
	le.PutUint16(b[16:], 2) // executable
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[40:], uint64(len(b)))
	le.PutUint16(b[52:], headerBytes)
	le.PutUint16(b[58:], headerBytes)
	le.PutUint16(b[60:], 4)
	le.PutUint16(b[62:], 2)
	return append(b, table...)
}

// TestManySections reads a file whose section 0 holds the number of sections and the place of their names.
func TestManySections(t *testing.T) {
	b := small()
	table := b[le.Uint64(b[40:]):]
	le.PutUint16(b[60:], 0)
	le.PutUint16(b[62:], inSection0)
	le.PutUint64(table[32:], 4)
	le.PutUint32(table[40:], 2)
	f, err := Read(bytes.NewReader(b))
	if err != nil || len(f.Sections) != 4 || f.Section("texts") == nil {
		t.Fatalf("got %+v, %v", f, err)
	}
}

// FuzzRead damages a small file. Nothing panics, and no more is read than is there.
func FuzzRead(f *testing.F) {
	f.Add(small())
	f.Fuzz(func(t *testing.T, image []byte) {
		x, err := Read(bytes.NewReader(image))
		if err != nil {
			return
		}
		for i := range x.Sections {
			if b, err := x.Data(&x.Sections[i]); err == nil && len(b) > len(image) {
				t.Errorf("section %d has %d bytes in a file of %d", i, len(b), len(image))
			}
		}
		symbols, err := x.Symbols()
		needed, nerr := x.Needed()
		if len(symbols)*symbolBytes > len(image) || len(needed)*dynamicBytes > len(image) {
			t.Errorf("%d symbols (%v) and %d libraries (%v) in %d bytes", len(symbols), err, len(needed), nerr,
				len(image))
		}
	})
}

// TestDamage flips and cuts a small file at every byte.
func TestDamage(t *testing.T) {
	whole := small()
	x, err := Read(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := x.Symbols()
	needed, nerr := x.Needed()
	if err != nil || nerr != nil || !slices.Equal(symbols, []Symbol{{Name: "symbols", Section: 2}}) ||
		!slices.Equal(needed, []string{"libmpi.so.40"}) {
		t.Fatalf("got %v, %v; %q, %v", symbols, err, needed, nerr)
	}
	for i := range whole {
		if _, err := Read(bytes.NewReader(whole[:i])); err == nil {
			t.Errorf("the first %d bytes pass for a file", i)
		}
		for bit := range 8 {
			b := slices.Clone(whole)
			b[i] ^= 1 << bit
			if x, err := Read(bytes.NewReader(b)); err == nil {
				_, _ = x.Symbols() // an error or not: it returns
				_, _ = x.Needed()
			}
		}
	}
}
