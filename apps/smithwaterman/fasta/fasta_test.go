package fasta

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	all, err := Read(strings.NewReader(">one\tfirst of two\r\nacgt\nACG\n\n>two\nM*K-\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].Name != "one" || string(all[0].Letters) != "ACGTACG" ||
		string(all[1].Letters) != "M*K-" {
		t.Errorf("got %+v", all)
	}
}

func TestReadRefuses(t *testing.T) {
	for text, line := range map[string]int{"ACGT\n": 1, ">a b\rACGT\r": 1, ">a\nAC\nA1\n": 3, ">a\nA C\n": 2} {
		_, err := Read(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("line %d: ", line)) {
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
