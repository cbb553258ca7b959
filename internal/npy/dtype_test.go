package npy

import (
	"strings"
	"testing"
)

// TestType: types as manifests have them, and as NumPy does.
func TestType(t *testing.T) {
	for _, c := range []struct {
		elem  string
		bytes int64
		want  string
		dims  string
	}{
		{"float32", 4, "'<f4'", "(,)"},
		{"[2][3]uint8", 6, "'|u1'", "(2, 3)"},
		{"{A@0 int8;B@8 complex128;}24", 24, "[('A', '|i1'), ('', '|V7'), ('B', '<c16')]", "(,)"},
		{"{In@0 {X@0 bool;_@1 [3]uint8;}4;Y@4 [2]{Z@0 int16;}2;}8", 8,
			"[('In', [('X', '|b1'), ('', '|V3')]), ('Y', [('Z', '<i2')], (2,))]", "(,)"},
		{"[4]{N@0 uint16;}2", 8, "[('N', '<u2')]", "(4,)"},
		{"{A@0 int8;}2", 3, "'|V3'", "(,)"},
		{"{A@0 mpi;}8", 8, "'|V8'", "(,)"},
		{"{A@0 int8", 1, "'|V1'", "(,)"},
		{"{}0", 1, "'|V1'", "(,)"},
	} {
		got := Type(c.elem, c.bytes)
		if got.Descr != c.want || strings.Replace(tuple(got.Dims), "()", "(,)", 1) != c.dims || got.Bytes != c.bytes {
			t.Errorf("%s: got %s %v of %d bytes, want %s %s", c.elem, got.Descr, got.Dims, got.Bytes, c.want, c.dims)
		}
	}
}
