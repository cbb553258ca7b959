// Package fasta reads sequences in FASTA form: a line that begins
// with > and names a sequence, then lines of letters up to the next such line.
package fasta

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

// A Sequence is one record.
type Sequence struct {
	Name    string // the first word after the >
	Letters []byte // upper case, no white space
}

// Read reads all records. Letters become upper case; a character that is neither a
// letter nor * or - is an error that names its line.
func Read(r io.Reader) ([]Sequence, error) {
	var all []Sequence
	in := bufio.NewReaderSize(r, 1<<16)
	for line := 1; ; line++ {
		text, err := in.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("read fasta: %w", err)
		}
		if why := add(&all, bytes.TrimSpace(text)); why != "" {
			return nil, fmt.Errorf("fasta: line %d: %s", line, why)
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
		var name string
		if words := bytes.Fields(text[1:]); len(words) > 0 {
			name = string(words[0])
		}
		*all = append(*all, Sequence{Name: name})
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
