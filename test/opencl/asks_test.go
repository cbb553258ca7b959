package opencl

import (
	"strings"
	"testing"
)

// stricter are the lines in which the library follows the specification of OpenCL 1.2 where
// PoCL 3.1 does not.
var stricter = []string{
	"devices -30 -30 -31 -1 0",      // PoCL finds no device of type 0; it is no type
	"format -39",                    // PoCL: not supported
	"pitch without bytes -65",       // PoCL takes a pitch of no memory
	"pitch 0 4 36 0 9 7 0 0",        // the pitch of an image that only copied its bytes is its own
	"small pitch -65",               // PoCL takes rows that overlap
	"no width -40",                  // PoCL: CL_INVALID_BUFFER_SIZE
	"beyond the buffer -40",         // PoCL: CL_INVALID_MEM_OBJECT
	"type -65",                      // PoCL: CL_INVALID_VALUE
	"group of 8 0 of 3 -54 no size", // PoCL takes a launch of no size, as 2.1 does
	"read -30 of an image -38 queue -36 overlap -8 pattern -30 uneven -30", // PoCL: CL_INVALID_VALUE
	"pixels 0 beyond -30 nothing -30 of a buffer -38 box -30",              // PoCL reads no rows
	"argument of another context -38",                                      // PoCL takes it
}

// TestAsks: what the library says of its objects, and what it refuses, is what PoCL says, or
// what the specification does. It is the same on both devices, but for what devices say of themselves.
func TestAsks(t *testing.T) {
	onPoCL(t)
	l := newLab(t)
	want := strings.Split(l.run(without, "asks"), "\n")
	got := strings.Split(l.run(through(platform), "asks"), "\n")
	if len(got) != len(want) {
		t.Fatalf("got %d lines, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] == want[i] || strings.Contains(want[i], "REFERENCE_COUNT") {
			continue
		}
		if !known(got[i]) {
			t.Errorf("got  %s\nwant %s", got[i], want[i])
		}
	}
	other := strings.Split(l.run(through(another), "asks"), "\n")
	for i := range got {
		if i >= len(other) || other[i] != got[i] && !strings.HasPrefix(got[i], "device") {
			t.Fatalf("on %s: line %d, want %s\n%s", another, i, got[i], strings.Join(other, "\n"))
		}
	}
}

func known(line string) bool {
	for _, s := range stricter {
		if strings.HasPrefix(line, s) {
			return true
		}
	}
	return false
}
