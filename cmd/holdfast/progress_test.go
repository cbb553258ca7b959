package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func TestBarLine(t *testing.T) {
	b := counter{what: "verifying", total: 8 << 30, done: func() int64 { return 2 << 30 }, text: sizeText}
	const want = "verifying [#####...............]  25 %  2.0 GiB of 8.0 GiB, 1.0 GiB/s, 6.0 s to go"
	if got := b.line(2 * time.Second); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	b.total = 1 << 30 // an estimate may be too low
	if got, want := b.line(2*time.Second), "verifying [####################] 100 %  1.0 GiB of 1.0 GiB, "+
		"1.0 GiB/s"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestBarDraws: a bar is drawn over itself and goes at the end.
func TestBarDraws(t *testing.T) {
	var out bytes.Buffer
	c := counter{what: "removing", done: func() int64 { return 3 }, text: sizeText}
	b := bar{w: &out, line: c.line, begun: time.Now().Add(-time.Second)}
	b.draw(b.begun.Add(time.Second))
	quit := make(chan struct{})
	close(quit)
	b.run(quit)
	const line = "removing 3 B, 3 B/s"
	if want := "\r" + line + "\r" + string(bytes.Repeat([]byte(" "), len(line))) + "\r"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestSteps: of so many, or of nobody knows how many; never wider than the
// terminal.
func TestSteps(t *testing.T) {
	s := stepper{what: "measuring"}
	s.begin("one", 4)
	s.begin("two", 4)
	if got, want := s.line(10*time.Second), "measuring [#####...............]  25 %  10 s, 30 s to "+
		"go: two"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	s.total = 0
	if got, want := s.line(10*time.Second), "measuring for 10 s: two"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	s.begin(strings.Repeat("long ", 40), 0)
	var out bytes.Buffer
	b := bar{w: &out, line: s.line}
	if b.draw(time.Now()); out.Len() != 80 || b.wide != 79 {
		t.Errorf("got %d bytes, want a carriage return and 79", out.Len())
	}
}

// TestNoBar: what is no terminal gets none.
func TestNoBar(t *testing.T) {
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetErr(&out)
	stop := showBar(cmd, "x", 1, func() int64 { return 1 }, sizeText)
	stop()
	stop()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if out.Len() > 0 || isTerminal(f) {
		t.Errorf("got %q; a file is a terminal: %v", out.String(), isTerminal(f))
	}
}

// TestTally counts what a file system did.
func TestTally(t *testing.T) {
	var c tally
	name := filepath.Join(t.TempDir(), "f")
	f, err := c.fs().Create(name, false)
	if err != nil {
		t.Fatal(err)
	}
	_, werr := f.WriteAt([]byte("hello"), 0)
	_, rerr := f.ReadAt(make([]byte, 3), 0)
	if err := f.Close(); werr != nil || rerr != nil || err != nil {
		t.Fatal(werr, rerr, err)
	}
	if err := c.fs().Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := c.fs().Open(name); err == nil {
		t.Error("opened what was removed")
	}
	if r, w, d := c.read.Load(), c.written.Load(), c.removed.Load(); r != 3 || w != 5 || d != 1 {
		t.Errorf("got %d read, %d written, %d removed, want 3, 5, 1", r, w, d)
	}
}
