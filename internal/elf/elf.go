// Package elf reads ELF files of 64 bits, low byte first: sections, symbols, needed libraries. Package debug/elf links
// what reads debugging information and compressed sections into every program.
//
// A file may be damaged, or hostile: it is read within its bounds.
package elf

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"
)

// Kinds of sections.
const (
	SymbolTable  = 2
	Dynamic      = 6
	DynamicTable = 11 // symbols that the loader knows
)

// What a symbol is; see Symbol.
const (
	Undefined     = 0 // section of a symbol of another file
	Global        = 1 // binding
	SectionSymbol = 3 // type
)

var errFormat = errors.New("not an ELF file of 64 bits, low byte first")

// File is an ELF file.
type File struct {
	Sections []Section
	r        io.ReaderAt
}

// Section is a section of a file.
type Section struct {
	Name      string
	Kind      uint32
	Link      int // the section with its names
	off, size uint64
	r         io.ReaderAt
}

// Symbol is an entry of a table of symbols.
type Symbol struct {
	Name          string
	Type, Binding uint8
	Section       int // in File.Sections, or Undefined, or one that is none
}

var le = binary.LittleEndian

// New reads the table of sections.
func New(r io.ReaderAt) (*File, error) {
	var head [64]byte
	_, err := r.ReadAt(head[:], 0)
	if err != nil || string(head[:6]) != "\x7fELF\x02\x01" || le.Uint16(head[58:]) != 64 {
		return nil, errFormat
	}
	count, names := int(le.Uint16(head[60:])), int(le.Uint16(head[62:]))
	table := Section{r: r, off: le.Uint64(head[40:]), size: uint64(count) * 64}
	b, err := table.Data()
	if err != nil || names >= count {
		return nil, errFormat
	}
	f := &File{r: r}
	offsets := make([]uint32, count)
	for i := range count {
		h := b[64*i:]
		offsets[i] = le.Uint32(h)
		f.Sections = append(f.Sections, Section{Kind: le.Uint32(h[4:]), Link: int(le.Uint32(h[40:])),
			off: le.Uint64(h[24:]), size: le.Uint64(h[32:]), r: r})
	}
	text, err := f.Sections[names].Data()
	all := string(text)
	for i := range offsets {
		f.Sections[i].Name = at(all, uint64(offsets[i]))
	}
	return f, err
}

// Data reads a section.
func (s *Section) Data() ([]byte, error) {
	const most = 1 << 62
	if s.off > most || s.size > most {
		return nil, errFormat
	}
	b, err := io.ReadAll(io.NewSectionReader(s.r, int64(s.off), int64(s.size)))
	if err == nil && uint64(len(b)) < s.size {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// entries gives each entry of the first section of a kind, of so many bytes, to do, with the names that it refers to.
func (f *File) entries(kind uint32, size int, do func(entry []byte, names string)) error {
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Kind != kind {
			continue
		}
		b, err := s.Data()
		if err != nil || s.Link >= len(f.Sections) {
			return errFormat
		}
		text, err := f.Sections[s.Link].Data()
		if err != nil {
			return err
		}
		for names := string(text); len(b) >= size; b = b[size:] {
			do(b[:size], names)
		}
		return nil
	}
	return nil
}

// Symbols lists the symbols of the table of a kind.
func (f *File) Symbols(kind uint32) (out []Symbol, err error) {
	err = f.entries(kind, 24, func(e []byte, names string) {
		out = append(out, Symbol{Name: at(names, uint64(le.Uint32(e))), Type: e[4] & 15, Binding: e[4] >> 4,
			Section: int(le.Uint16(e[6:]))})
	})
	return out, err
}

// Needed lists the libraries that the loader loads for the file.
func (f *File) Needed() (out []string, err error) {
	const needed = 1
	err = f.entries(Dynamic, 16, func(e []byte, names string) {
		if le.Uint64(e) == needed {
			out = append(out, at(names, le.Uint64(e[8:])))
		}
	})
	return out, err
}

// at is the text in names from an offset on, which ends with a zero; empty if there is none.
func at(names string, off uint64) string {
	text, _, _ := strings.Cut(names[min(off, uint64(len(names))):], "\x00")
	return text
}
