package random

import (
	"bytes"
	"strings"
	"testing"
)

// TestFill: every byte is filled, of many as of one, and none is as before.
func TestFill(t *testing.T) {
	fromDevice := func(b []byte) {
		if n, err := fromFile(b); err != nil || n != len(b) {
			t.Errorf("from the device: got %d bytes and %v, want %d", n, err, len(b))
		}
	}
	for _, fill := range []func([]byte){Fill, fromDevice} {
		for _, n := range []int{0, 1, 32, 300, 1 << 16} {
			var seen []byte // the bits that were set in some round
			unset := bytes.Repeat([]byte{0xff}, n)
			for range 64 {
				b := make([]byte, n+1)
				fill(b[:n])
				if b[n] != 0 {
					t.Fatalf("%d bytes: one more is written", n)
				}
				seen = append(seen[:0], b[:n]...)
				for i := range unset {
					unset[i] &^= seen[i]
				}
			}
			if bytes.Contains(unset, []byte{0xff}) {
				t.Errorf("%d bytes: some were never filled", n)
			}
		}
	}
}

// TestText: texts differ, are of one length, and use every letter equally often.
func TestText(t *testing.T) {
	const texts, length = 4000, 26
	seen, count := map[string]bool{}, map[rune]int{}
	for range texts {
		s := Text()
		if len(s) != length || seen[s] {
			t.Fatalf("got %q, seen before: %t", s, seen[s])
		}
		seen[s] = true
		for _, r := range s {
			count[r]++
		}
	}
	const mean = texts * length / 32
	for r, n := range count { // the deviation is 56
		if !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", r) || n < mean-400 || n > mean+400 {
			t.Errorf("%q comes %d times, want about %d", r, n, mean)
		}
	}
	if len(count) != 32 {
		t.Errorf("got %d letters, want 32", len(count))
	}
}
