package main

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseRefuses(t *testing.T) {
	cases := []struct{ args, want string }{
		{"", "either -in FILE or -plummer"},
		{"-in a -plummer 8", "either -in FILE or -plummer"},
		{"-plummer 8 -steps -1", "-steps -1"},
		{"-plummer 8 -dt 0", "-dt 0"},
		{"-plummer 8 -dt NaN", "-dt NaN"},
		{"-plummer 8 -dt 1e-50", "-dt 1e-50"}, // 0 in single precision
		{"-plummer 8 -dt 1e39", "-dt 1e+39"},
		{"-plummer 8 -eps 1e-20", "-eps 1e-20"},
		{"-plummer 8 -eps -1", "-eps -1"},
		{"-plummer 8 -eps 1e30", "-eps 1e+30"},
		{"-plummer 8 -every -1", "-every -1"},
		{"-plummer 8 more", `unexpected argument "more"`},
	}
	for _, c := range cases {
		_, err := parse(strings.Fields(c.args), io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.args, err, c.want)
		}
	}
}

// TestHelp: -help explains the program and every flag has a text.
func TestHelp(t *testing.T) {
	var out strings.Builder
	if _, err := parse([]string{"-help"}, &out); !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("got %v, want ErrHelp", err)
	}
	for _, want := range []string{"mpirun -np 4 nbody", "takes checkpoints", "-plummer", "-global directory", "USR1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help does not mention %q:\n%s", want, out.String())
		}
	}
}

func TestInitial(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(bad, []byte("nothing"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := &config{in: bad}
	if _, err := c.initial(); err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("got %v, want an error that names %s", err, bad)
	}
}

func TestPartition(t *testing.T) {
	for _, p := range []partition{{9, 4}, {8192, 4}, {7, 7}, {5, 1}, {1000, 13}} {
		at := 0
		for rank := range p.ranks {
			lo, hi := p.block(rank)
			if lo != at || hi-lo > p.largest() || hi-lo < p.bodies/p.ranks {
				t.Errorf("%v: rank %d owns %d to %d after %d", p, rank, lo, hi, at)
			}
			at = hi
		}
		if at != p.bodies {
			t.Errorf("%v: blocks end at %d", p, at)
		}
	}
}
