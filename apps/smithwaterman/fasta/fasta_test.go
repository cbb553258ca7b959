package fasta

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	all, err := Read(strings.NewReader(">one first of two\r\nacgt\nACG\n\n>two\nM*K-\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].Name != "one" || all[0].Description != "first of two" ||
		string(all[0].Letters) != "ACGTACG" || string(all[1].Letters) != "M*K-" {
		t.Errorf("got %+v", all)
	}
}

// TestReadUnpacks: what gzip made of a file reads the same; what is cut off is an
// error. A tab ends a name.
func TestReadUnpacks(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := io.WriteString(z, ">one\tfirst\nACGT\n"+strings.Repeat("ACGT\n", 1000)); err != nil ||
		z.Close() != nil {
		t.Fatal(err)
	}
	all, err := Read(bytes.NewReader(packed.Bytes()))
	if err != nil || len(all) != 1 || all[0].Name != "one" || all[0].Description != "first" ||
		len(all[0].Letters) != 4004 {
		t.Errorf("got %.80v, %v", all, err)
	}
	if _, err := Read(bytes.NewReader(packed.Bytes()[:packed.Len()-9])); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut off: got %v", err)
	}
}

// width is the length of the lines that write makes.
const width = 70

// write writes records.
func write(w io.Writer, all ...Sequence) error {
	out := bufio.NewWriter(w)
	for _, s := range all {
		fmt.Fprintf(out, ">%s", s.Name)
		if s.Description != "" {
			fmt.Fprintf(out, " %s", s.Description)
		}
		out.WriteByte('\n')
		for at := 0; at < len(s.Letters); at += width {
			out.Write(s.Letters[at:min(at+width, len(s.Letters))])
			out.WriteByte('\n')
		}
	}
	return out.Flush()
}

func TestRoundTrip(t *testing.T) {
	s := Sequence{"x", "a b", bytes.Repeat([]byte("ACGTN"), 100)}
	var b bytes.Buffer
	if err := write(&b, s, Sequence{Name: "empty"}); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&b)
	if err != nil || len(got) != 2 || !bytes.Equal(got[0].Letters, s.Letters) || got[0].Description != "a b" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestReadRefuses(t *testing.T) {
	for text, line := range map[string]int{"ACGT\n": 1, ">a b\rACGT\r": 1, ">a\nAC\nA1\n": 3, ">a\nA C\n": 2} {
		_, err := Read(strings.NewReader(text))
		var format *FormatError
		if !errors.As(err, &format) || format.Line != line {
			t.Errorf("%q: got %v, want an error at line %d", text, err, line)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(">a b\nACGT\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, s := range all {
			if bytes.ContainsAny(s.Letters, " \n>") {
				t.Fatalf("got letters %q", s.Letters)
			}
		}
	})
}
