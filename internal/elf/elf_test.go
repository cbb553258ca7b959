package elf

import (
	"bytes"
	"debug/elf"
	"os"
	"slices"
	"testing"
)

// TestLikeTheStandardLibrary reads this program and a library that it maps as debug/elf does.
func TestLikeTheStandardLibrary(t *testing.T) {
	for _, name := range []string{"/proc/self/exe", "/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6"} {
		r, err := os.Open(name)
		if err != nil {
			continue
		}
		defer r.Close()
		f, err := New(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want, err := elf.NewFile(r)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range want.Sections {
			got := f.Sections[i]
			if got.Name != s.Name || got.Kind != uint32(s.Type) {
				t.Errorf("%s: section %d: got %+v, want %+v", name, i, got, s)
			}
			if s.Type != elf.SHT_NOBITS && s.Flags&elf.SHF_COMPRESSED == 0 {
				b, err := got.Data()
				if w, werr := s.Data(); err != nil || werr != nil || !bytes.Equal(b, w) {
					t.Errorf("%s: section %s: %d bytes, %v; want %d, %v", name, s.Name, len(b), err, len(w), werr)
				}
			}
		}
		needed, err := f.Needed()
		if w, werr := want.ImportedLibraries(); err != nil || werr != nil || !slices.Equal(needed, w) {
			t.Errorf("%s: needed: got %v, %v, want %v, %v", name, needed, err, w, werr)
		}
		for kind, of := range map[uint32]func() ([]elf.Symbol, error){SymbolTable: want.Symbols,
			DynamicTable: want.DynamicSymbols} {
			var w []Symbol
			list, _ := of() // none of that kind is an error there
			for _, s := range list {
				w = append(w, Symbol{s.Name, uint8(elf.ST_TYPE(s.Info)), uint8(elf.ST_BIND(s.Info)), int(s.Section)})
			}
			got, err := f.Symbols(kind)
			if len(got) > 0 {
				got = got[1:] // which is empty
			}
			if err != nil || !slices.Equal(got, w) {
				t.Errorf("%s: symbols of kind %d: got %d, %v, want %d", name, kind, len(got), err, len(w))
			}
		}
	}
}

// FuzzFile: no file takes the program down.
func FuzzFile(f *testing.F) {
	f.Add([]byte("\x7fELF and no more"))
	head := make([]byte, 256)
	copy(head, "\x7fELF\x02\x01\x01")
	head[40], head[58], head[60], head[62] = 64, 64, 3, 1
	for i := range 3 {
		h := head[64+64*i:]
		h[4], h[24], h[32], h[40] = []byte{SymbolTable, Dynamic, DynamicTable}[i], 64, 255, 1
		h[36] = 255 // longer than any file
	}
	f.Add(head)
	f.Fuzz(func(_ *testing.T, b []byte) {
		x, err := New(bytes.NewReader(b))
		if err != nil {
			return
		}
		_, _ = x.Needed()
		for _, kind := range []uint32{SymbolTable, DynamicTable} {
			_, _ = x.Symbols(kind)
		}
		for i := range x.Sections {
			_, _ = x.Sections[i].Data()
		}
	})
}
