package main

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
)

// arrayDir has epoch 5 of three ranks with an array of 6 x 5 numbers, element (i, j) of which is 10 i + j: rank 0 has
// the even columns, rank 1 the odd ones of the first rows, rank 2 the rest.
func arrayDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	odd := layout.Span{Start: 1, Count: 1, Stride: 2, Times: 2}
	parts := []layout.Part{
		{Spans: [][]layout.Span{{layout.Run(0, 6)}, {{Start: 0, Count: 1, Stride: 2, Times: 3}}}},
		{Spans: [][]layout.Span{{layout.Run(0, 2)}, {odd}}},
		{Spans: [][]layout.Span{{layout.Run(2, 4)}, {odd}}},
	}
	var infos []storage.ShardInfo
	var first *storage.Store
	for r, p := range parts {
		s, err := storage.Open(t.Context(), storage.Options{Job: "sun", Rank: r, Size: 3, Elastic: true,
			Levels: []storage.LevelConfig{{Name: storage.LevelGlobal, Dir: dir}}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if first == nil {
			first = s
		}
		var u []byte
		for i := range int64(6) {
			for j := range int64(5) {
				own := j%2 == 0 && r == 0 || j%2 == 1 && (i < 2) == (r == 1) && r > 0
				if own {
					u = binary.LittleEndian.AppendUint32(u, uint32(10*i+j))
				}
			}
		}
		l := storage.Layout{Quiet: true, Arrays: []layout.Local{{Array: layout.Array{Name: "u", Type: "int32", Elem: 4,
			Dims: []int64{6, 5}, Kind: layout.Divided, Section: "array/u"}, Parts: []layout.Part{p}}}}
		b, err := l.Encode()
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Put(t.Context(), 5, storage.LevelGlobal, []storage.Section{
			{Name: "array/u", Size: int64(len(u)), Source: storage.Bytes(u)},
			{Name: storage.LayoutSection, Size: int64(len(b)), Source: storage.Bytes(b)}})
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	if err := first.Commit(t.Context(), 5, storage.LevelGlobal, infos); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestExportArray: the shares of all ranks make up one array, which NumPy reads where it is installed.
func TestExportArray(t *testing.T) {
	dir := arrayDir(t)
	file := filepath.Join(t.TempDir(), "u.npy")
	if code, out, msg := run(t, "export", "newest", "u", "--from", dir, "-o", file); code != 0 {
		t.Fatalf("code %d: %s%s", code, out, msg)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const head = 128
	want := "{'descr': '<i4', 'fortran_order': False, 'shape': (6, 5), }"
	if len(b) != head+6*5*4 || string(b[:8]) != "\x93NUMPY\x01\x00" || binary.LittleEndian.Uint16(b[8:]) != head-10 ||
		!strings.HasPrefix(string(b[10:]), want) || b[head-1] != '\n' {
		t.Fatalf("%d bytes that begin with %q", len(b), b[:min(len(b), head)])
	}
	for i := range 6 {
		for j := range 5 {
			if got := binary.LittleEndian.Uint32(b[head+4*(5*i+j):]); got != uint32(10*i+j) {
				t.Errorf("element (%d, %d) is %d, want %d", i, j, got, 10*i+j)
			}
		}
	}
	code, _, msg := run(t, "export", "5", "u", "--from", dir, "-o", file)
	if code == 0 || !strings.Contains(msg, "exists") {
		t.Errorf("code %d, %q: the file was there", code, msg)
	}
	python, err := exec.LookPath("python3")
	if err != nil || exec.Command(python, "-c", "import numpy").Run() != nil {
		t.Log("not read by NumPy: it is not installed")
		return
	}
	out, err := exec.Command(python, "-c", "import numpy, sys; a = numpy.load(sys.argv[1]); "+
		"print(a.shape, a.dtype, (a == [[10*i+j for j in range(5)] for i in range(6)]).all())", file).CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "(6, 5) int32 True" {
		t.Errorf("NumPy reads %q, %v", got, err)
	}
}
