package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/apps/internal/jobtest"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// simulated runs the program on simulated ranks, without checkpoints, and
// returns what it wrote.
func simulated(t *testing.T, ranks int, seed uint64, args string) ([]byte, error) {
	t.Helper()
	jobtest.Device(t)
	out := filepath.Join(t.TempDir(), "out.txt")
	c, err := parse(append(strings.Fields(args), "-progress", "0", "-out", out), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	err = mpitest.Run(ranks, seed, func(world *mpiwrap.Comm) error {
		return c.common.On(context.Background(), "smithwaterman", world, c.align)
	})
	if err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

// host aligns on the host and returns the text.
func host(t *testing.T, args string) []byte {
	t.Helper()
	c, err := parse(strings.Fields(args), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.load()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	al := p.scoring.Local(p.a.Codes, p.b.Codes)
	if err := al.Write(&out, p.scoring, p.a, p.b); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestRanks: any number of ranks gives the host's alignment, whatever the
// delays of messages.
func TestRanks(t *testing.T) {
	for _, args := range []string{
		"-matrix blosum62 -a input/hba.fa -b input/hbb.fa",
		"-a input/lambda.fa:1-2000 -b input/lambda.fa:30001-33000",
		"-a input/lambda.fa:101-1500 -b input/lambda.fa:1-3000",
	} {
		want := host(t, args)
		for ranks := 1; ranks <= 4; ranks++ {
			got, err := simulated(t, ranks, uint64(ranks), args)
			if err != nil {
				t.Fatalf("%s on %d ranks: %v", args, ranks, err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("%s on %d ranks: got\n%.600s\nwant\n%.600s", args, ranks, got, want)
			}
		}
	}
}

// TestScoreOnly: without keeping anything the score and the end are the same.
func TestScoreOnly(t *testing.T) {
	got, err := simulated(t, 3, 1, "-score -a input/lambda.fa:1-6000 -b input/lambda.fa:30001-37000")
	if err != nil {
		t.Fatal(err)
	}
	// 3519 is what EMBOSS's water finds; see package align.
	if !strings.Contains(string(got), "# Score: 3519\n") || !strings.Contains(string(got), "# Ends at: ") {
		t.Errorf("got\n%s", got)
	}
}

// TestNothingAlike: sequences without a pair of equal letters have no alignment.
func TestNothingAlike(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.fa"), filepath.Join(dir, "b.fa")
	for name, text := range map[string]string{a: ">a\nAAAA\n", b: ">b\nCCCCC\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := simulated(t, 2, 1, "-a "+a+" -b "+b)
	if err != nil || !strings.Contains(string(got), "# Score: 0\n") || strings.Contains(string(got), "Ends at") {
		t.Errorf("got %q, %v, want a score of 0 and no end", got, err)
	}
}

// TestPlaces: places are those in the whole sequences, even if parts are aligned,
// as water counts with -sbegin.
func TestPlaces(t *testing.T) {
	const args = "-a input/lambda.fa:1001-1100 -b input/lambda.fa:1031-1200"
	got, err := simulated(t, 2, 1, args)
	for _, want := range []string{"NC_001416.1      1031 ", " 1090\n", "NC_001416.1      1091 GTCGCTGCTG 1100\n"} {
		if err != nil || strings.Count(string(got), want) != 2 {
			t.Errorf("got %v and\n%s\nwant %q twice", err, got, want)
		}
	}
	got, err = simulated(t, 2, 1, "-score "+args)
	if err != nil || !strings.Contains(string(got), "# Ends at: 1100 1100\n") {
		t.Errorf("got %v and\n%s\nwant the end at 1100 1100", err, got)
	}
}

func TestMoreRanksThanLetters(t *testing.T) {
	_, err := simulated(t, 3, 1, "-a input/lambda.fa:1-10 -b input/lambda.fa:1-2")
	if err == nil || !strings.Contains(err.Error(), "10 by 2 letters on 3 ranks") {
		t.Errorf("got %v, want an error with the numbers", err)
	}
}

func TestParseRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"":                                 "-a FILE and -b FILE",
		"-a x":                             "-a FILE and -b FILE",
		"-a x -b y z":                      `unexpected argument "z"`,
		"-a x:9-3 -b y":                    "1 <= FROM <= TO",
		"-a x:a-b -b y":                    "x:a-b",
		"-a x:0-5 -b y":                    "1 <= FROM <= TO",
		"-a x:1-99999999999999999999 -b y": "1 <= FROM <= TO",
		"-a input/lambda.fa:1-99999 -b input/lambda.fa":    "it has 48502",
		"-a input/none.fa -b input/lambda.fa":              "none.fa",
		"-a input/hbb.fa -b input/lambda.fa":               "not in matrix dna",
		"-a input/hba.fa -b input/hbb.fa -matrix nonesuch": "blosum62 or dna",
	} {
		c, err := parse(strings.Fields(args), io.Discard)
		if err == nil {
			_, err = c.load()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", args, err, want)
		}
	}
}

func TestHelp(t *testing.T) {
	var out strings.Builder
	if _, err := parse([]string{"-help"}, &out); !errors.Is(err, flag.ErrHelp) ||
		!strings.Contains(out.String(), "mpirun -np 4 smithwaterman") {
		t.Errorf("got %v and\n%s", err, out.String())
	}
}

// TestAwkwardFiles: lower case, N, CRLF, empty lines, no line end, a colon in the
// name and a second record give what plain files give; a record without letters is
// refused by name.
func TestAwkwardFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	plain := write("plain.fa", ">s\nACGTNACGGTACCATGACCA\n")
	want, err := simulated(t, 2, 1, "-a "+plain+" -b "+plain)
	if err != nil {
		t.Fatal(err)
	}
	awkward := write("run:7-x.fa", ">s some words\r\nacgtnACG\r\n\r\nGTACCATGACCA\r\n>t\r\nAAAA")
	got, err := simulated(t, 2, 1, "-a "+awkward+" -b "+awkward)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	part, err := simulated(t, 1, 1, "-a "+awkward+":1-20 -b "+plain)
	if err != nil || !bytes.Equal(part, want) {
		t.Errorf("a part: got %s, %v, want %s", part, err, want)
	}
	empty := write("empty.fa", ">none\n>s\nACGT\n")
	if _, err := simulated(t, 1, 1, "-a "+empty+" -b "+plain); err == nil ||
		!strings.Contains(err.Error(), `"none" has no letters`) {
		t.Errorf("got %v, want an error that names the sequence", err)
	}
}

// TestIdentity: another problem has another identity.
func TestIdentity(t *testing.T) {
	// The same letters at other places.
	raw, err := os.ReadFile("input/lambda.fa")
	if err != nil {
		t.Fatal(err)
	}
	shifted := filepath.Join(t.TempDir(), "shifted.fa")
	if err := os.WriteFile(shifted, bytes.Replace(raw, []byte("\n"), []byte("\nA"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, args := range []string{
		"-a input/lambda.fa:1-100 -b input/lambda.fa:1-100", "-a input/lambda.fa:1-101 -b input/lambda.fa:1-100",
		"-a input/lambda.fa:1-100 -b input/lambda.fa:1-100 -open 11",
		"-a input/lambda.fa:1-100 -b input/lambda.fa:1-100 -extend 2",
		"-a " + shifted + ":2-101 -b input/lambda.fa:1-100",
	} {
		c, err := parse(strings.Fields(args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.load()
		if err != nil {
			t.Fatal(err)
		}
		id := p.identity(false)
		if other, ok := seen[id]; ok || id == p.identity(true) {
			t.Errorf("%q and %q have the same identity", args, other)
		}
		seen[id] = args
	}
}
