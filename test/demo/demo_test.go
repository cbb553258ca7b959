package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSameBytes(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(a, "same")
	write(b, "same")
	if err := sameBytes(a, b); err != nil {
		t.Error(err)
	}
	write(b, "sane")
	if err := sameBytes(a, b); err == nil || !strings.Contains(err.Error(), "byte 2") {
		t.Errorf("got %v, want a difference at byte 2", err)
	}
}

// TestClearRefuses: the demo removes only what a demo has made.
func TestClearRefuses(t *testing.T) {
	d := &demo{dir: t.TempDir()}
	keep := filepath.Join(d.dir, "thesis.tex")
	if err := os.WriteFile(keep, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.clear(); err == nil {
		t.Error("cleared a directory that is not of a demo")
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
	d.dir = filepath.Join(d.dir, "new")
	for range 2 {
		if err := d.clear(); err != nil {
			t.Errorf("a directory of its own: %v", err)
		}
	}
}

func TestStats(t *testing.T) {
	var s stats
	s.read("x\nINFO holdfast: committed rank=0 epoch=3 level=local bytes=9 blocked=4ms durable=5ms\n" +
		"INFO holdfast: committed rank=0 epoch=3 level=global bytes=90012 blocked=4ms durable=30ms\ny\n")
	s.read("INFO holdfast: restored rank=0 ranks=4 epoch=3 level=\"local (rank 0), global\" bytes=90034 took=7ms\n")
	if want := (stats{"90.0 kB a rank", "4ms", "30ms", "7ms"}); s != want {
		t.Errorf("got %+v, want %+v", s, want)
	}
}
