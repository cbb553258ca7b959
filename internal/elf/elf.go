// Package elf reads 64-bit little-endian ELF files: executables, shared libraries, CUDA modules. It reads only the
// parts that Holdfast needs: debug/elf would bring six more packages into every program. It trusts no length that a
// file states.
package elf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// File is an ELF file. Its reader must stay open.
type File struct {
	Sections []Section
	r        io.ReaderAt
}

// Section is a section of a file.
type Section struct {
	Name               string
	nameAt, kind, link uint32
	offset, size       uint64
}

// Symbol is an entry of a file's symbol table.
type Symbol struct {
	Name      string
	Section   int  // index in File.Sections, or a special value beyond them; 0: undefined
	IsSection bool // it stands for a section as a whole
}

// Sizes and numbers of the format.
const (
	headerBytes  = 64 // of the file's header, and of each section's
	symbolBytes  = 24
	dynamicBytes = 16

	kindSymbols   = 2
	kindDynamic   = 6
	kindNoBits    = 8
	symbolSection = 3
	tagNeeded     = 1
	inSection0    = 0xffff // in place of the index of the section with names: section 0 has it
)

var (
	le        = binary.LittleEndian
	errFormat = errors.New("no 64-bit little-endian ELF file")
)

// Read reads the headers of the sections.
func Read(r io.ReaderAt) (*File, error) {
	f := &File{r: r}
	h, err := f.Data(&Section{Name: "header", size: headerBytes})
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(h, []byte("\x7fELF\x02\x01\x01")) {
		return nil, errFormat
	}
	offset, count, names := le.Uint64(h[40:]), uint64(le.Uint16(h[60:])), uint32(le.Uint16(h[62:]))
	if offset == 0 {
		return f, nil // it has no sections
	}
	if le.Uint16(h[58:]) != headerBytes {
		return nil, errFormat
	}
	if err := f.headers(offset, max(count, 1)); err != nil {
		return nil, err
	}
	if names == inSection0 {
		names = f.Sections[0].link
	}
	if count == 0 { // 65,280 and more: section 0 has the number
		if err := f.headers(offset, f.Sections[0].size); err != nil {
			return nil, err
		}
	}
	texts, err := f.linked(names)
	for i := 0; i < len(f.Sections) && err == nil; i++ {
		f.Sections[i].Name, err = text(texts, uint64(f.Sections[i].nameAt))
	}
	return f, err
}

// headers reads the headers of count sections.
func (f *File) headers(offset, count uint64) error {
	b, err := f.Data(&Section{Name: "headers", offset: offset, size: min(count, math.MaxUint32) * headerBytes})
	f.Sections = nil
	for ; len(b) > 0; b = b[headerBytes:] {
		f.Sections = append(f.Sections, Section{nameAt: le.Uint32(b), kind: le.Uint32(b[4:]), offset: le.Uint64(b[24:]),
			size: le.Uint64(b[32:]), link: le.Uint32(b[40:])})
	}
	return err
}

// Section returns the section of a name, or nil.
func (f *File) Section(name string) *Section {
	for i := range f.Sections {
		if f.Sections[i].Name == name {
			return &f.Sections[i]
		}
	}
	return nil
}

// Data returns the bytes of a section.
func (f *File) Data(s *Section) ([]byte, error) {
	if s.kind == kindNoBits || s.offset > math.MaxInt64 || s.size > math.MaxInt64 {
		return nil, fmt.Errorf("section %q: %w", s.Name, errFormat)
	}
	b, err := io.ReadAll(io.NewSectionReader(f.r, int64(s.offset), int64(s.size)))
	if err == nil && uint64(len(b)) < s.size {
		err = fmt.Errorf("section %q: %w", s.Name, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// linked returns the bytes of the section of an index.
func (f *File) linked(index uint32) ([]byte, error) {
	if uint64(index) >= uint64(len(f.Sections)) {
		return nil, errFormat
	}
	return f.Data(&f.Sections[index])
}

// text returns the text at an offset, which a zero byte ends.
func text(texts []byte, offset uint64) (string, error) {
	if offset < uint64(len(texts)) {
		if n := bytes.IndexByte(texts[offset:], 0); n >= 0 {
			return string(texts[offset:][:n]), nil
		}
	}
	return "", errFormat
}

// table returns the bytes of the first section of a kind, and the texts that it refers to.
func (f *File) table(kind uint32) (b, texts []byte, err error) {
	for i := range f.Sections {
		if s := &f.Sections[i]; s.kind == kind {
			if b, err = f.Data(s); err == nil {
				texts, err = f.linked(s.link)
			}
			return b, texts, err
		}
	}
	return nil, nil, errFormat
}

// Symbols lists the symbol table. A file without one is an error.
func (f *File) Symbols() ([]Symbol, error) {
	b, texts, err := f.table(kindSymbols)
	var out []Symbol
	for ; len(b) >= symbolBytes && err == nil; b = b[symbolBytes:] {
		s := Symbol{Section: int(le.Uint16(b[6:])), IsSection: b[4]&0xf == symbolSection}
		s.Name, err = text(texts, uint64(le.Uint32(b)))
		out = append(out, s)
	}
	if err != nil || len(b) > 0 || len(out) == 0 {
		return nil, errors.Join(errFormat, err)
	}
	return out[1:], nil // the first is empty
}

// Needed lists the shared libraries that the file is linked with.
func (f *File) Needed() ([]string, error) {
	b, texts, err := f.table(kindDynamic)
	var out []string
	for ; len(b) >= dynamicBytes && err == nil; b = b[dynamicBytes:] {
		if le.Uint64(b) == tagNeeded {
			var name string
			name, err = text(texts, le.Uint64(b[8:]))
			out = append(out, name)
		}
	}
	return out, err
}
