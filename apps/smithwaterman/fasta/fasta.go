// Package fasta reads and writes sequences in FASTA form: a line that begins
// with > and names a sequence, then lines of letters up to the next such line.
package fasta

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
)

// A Sequence is one record.
type Sequence struct {
	Name        string // the first word after the >
	Description string // the rest of that line
	Letters     []byte // upper case, no white space
}

// A FormatError says where a file is not FASTA.
type FormatError struct {
	Line int // 1-based
	Why  string
}

// Error names the line and what is wrong with it.
func (e *FormatError) Error() string { return fmt.Sprintf("fasta: line %d: %s", e.Line, e.Why) }

// Read reads all records, from text or from what gzip has made of it. Letters become
// upper case; a character that is neither a letter nor * or - is an error that names
// its line.
func Read(r io.Reader) ([]Sequence, error) {
	var all []Sequence
	in := bufio.NewReaderSize(r, 1<<16)
	if magic, _ := in.Peek(2); string(magic) == "\x1f\x8b" {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("read fasta: %w", err)
		}
		in = bufio.NewReaderSize(unpacked, 1<<16)
	}
	for line := 1; ; line++ {
		text, err := in.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("read fasta: %w", err)
		}
		if why := add(&all, bytes.TrimSpace(text)); why != "" {
			return nil, &FormatError{line, why}
		}
		if err == io.EOF {
			return all, nil
		}
	}
}

// add takes one line into the records; it returns why it cannot.
func add(all *[]Sequence, text []byte) (why string) {
	if len(text) == 0 {
		return ""
	}
	if bytes.IndexByte(text, '\r') >= 0 {
		return "a carriage return within the line; a line ends with a line feed"
	}
	if text[0] == '>' {
		name, description := bytes.TrimSpace(text[1:]), []byte(nil)
		if end := bytes.IndexAny(name, " \t"); end >= 0 {
			name, description = name[:end], bytes.TrimSpace(name[end:])
		}
		*all = append(*all, Sequence{Name: string(name), Description: string(description)})
		return ""
	}
	if len(*all) == 0 {
		return "letters before the first line that begins with >"
	}
	last := &(*all)[len(*all)-1]
	for _, c := range bytes.ToUpper(text) {
		if (c < 'A' || c > 'Z') && c != '*' && c != '-' {
			return fmt.Sprintf("%q is not a letter of a sequence", c)
		}
		last.Letters = append(last.Letters, c)
	}
	return ""
}
