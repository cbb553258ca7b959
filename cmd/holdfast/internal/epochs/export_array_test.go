package epochs

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
)

// arrayDir has epoch 5 of three ranks with an array of 6 x 5 numbers, element (i, j) of which is 10 i + j: rank 0 has
// the even columns, rank 1 the odd ones of the first rows, rank 2 the rest. Rank 0 stores the replicated number n, 7.
func arrayDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	odd := layout.Span{Start: 1, Count: 1, Stride: 2, Times: 2}
	parts := []layout.Part{
		{Spans: [][]layout.Span{{layout.Run(0, 6)}, {{Start: 0, Count: 1, Stride: 2, Times: 3}}}},
		{Spans: [][]layout.Span{{layout.Run(0, 2)}, {odd}}},
		{Spans: [][]layout.Span{{layout.Run(2, 4)}, {odd}}},
	}
	writeEpoch(t, dir, 5, len(parts), func(r int) (storage.Layout, []storage.Section) {
		var u []byte
		for i := range int64(6) {
			for j := range int64(5) {
				own := j%2 == 0 && r == 0 || j%2 == 1 && (i < 2) == (r == 1) && r > 0
				if own {
					u = binary.LittleEndian.AppendUint32(u, uint32(10*i+j))
				}
			}
		}
		n := layout.Local{Array: layout.Array{Name: "n", Type: "value int64", Elem: 1, Dims: []int64{8},
			Kind: layout.Replicated, Section: "array/n"}}
		var seven []byte
		if r == 0 {
			seven = binary.LittleEndian.AppendUint64(nil, 7)
			n.Parts = []layout.Part{layout.Box([]int64{0}, []int64{8})}
		}
		l := storage.Layout{Quiet: true, Arrays: []layout.Local{{Array: layout.Array{Name: "u", Type: "int32", Elem: 4,
			Dims: []int64{6, 5}, Kind: layout.Divided, Section: "array/u"}, Parts: []layout.Part{parts[r]}}, n}}
		return l, []storage.Section{
			{Name: "array/u", Size: int64(len(u)), Source: storage.Bytes(u)},
			{Name: "array/n", Size: int64(len(seven)), Source: storage.Bytes(seven)}}
	})
	return dir
}

// writeEpoch commits an epoch of ranks to a directory of the level global; of gives a rank's layout and
// sections.
func writeEpoch(t *testing.T, dir string, epoch storage.Epoch, ranks int,
	of func(r int) (storage.Layout, []storage.Section)) {
	t.Helper()
	var infos []storage.ShardInfo
	var first *storage.Store
	for r := range ranks {
		s, err := storage.Open(t.Context(), storage.Options{Job: "sun", Rank: r, Size: ranks, Elastic: true,
			Levels: []storage.LevelConfig{{Name: storage.LevelGlobal, Dir: dir}}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if first == nil {
			first = s
		}
		l, sections := of(r)
		b, err := l.Encode()
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Put(t.Context(), epoch, storage.LevelGlobal, append(sections,
			storage.Section{Name: storage.LayoutSection, Size: int64(len(b)), Source: storage.Bytes(b)}))
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	if err := first.Commit(t.Context(), epoch, storage.LevelGlobal, infos); err != nil {
		t.Fatal(err)
	}
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

// TestExportOfArrays: a replicated value, the list of what there is, and what cannot be.
func TestExportOfArrays(t *testing.T) {
	dir := arrayDir(t)
	const head = 128
	for _, c := range []struct {
		args, shape string
		want        []uint32
	}{
		{"n", "()", []uint32{7, 0}},
	} {
		file := filepath.Join(t.TempDir(), "x.npy")
		args := append(append([]string{"export", "5"}, strings.Fields(c.args)...), "--from", dir, "-o", file)
		if code, out, msg := run(t, args...); code != 0 {
			t.Errorf("%s: code %d: %s%s", c.args, code, out, msg)
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b[:head]), "'shape': "+c.shape) || len(b) != head+4*len(c.want) {
			t.Errorf("%s: %d bytes, %q; want the shape %s", c.args, len(b), b[:head], c.shape)
			continue
		}
		for i, want := range c.want {
			if got := binary.LittleEndian.Uint32(b[head+4*i:]); got != want {
				t.Errorf("%s: element %d is %d, want %d", c.args, i, got, want)
			}
		}
	}
	raw := filepath.Join(t.TempDir(), "n.i64")
	if code, _, msg := run(t, "export", "5", "n", "--from", dir, "-o", raw); code != 0 {
		t.Errorf("a replicated value without --rank: code %d: %s", code, msg)
	}
	if code, out, _ := run(t, "export", "5", "--from", dir); code != 0 ||
		!strings.Contains(out, "part of int32 [6 5]") || !strings.Contains(out, "replicated value int64") {
		t.Errorf("code %d, the list is\n%s", code, out)
	}
	for args, want := range map[string]string{
		"u -o u.raw":          "give a file NAME.npy for all of it",
		"u -o u.raw --rank 3": "ranks 0 to 2",
	} {
		t.Chdir(t.TempDir())
		code, _, msg := run(t, append(append([]string{"export", "5"}, strings.Fields(args)...), "--from", dir)...)
		if code != cli.NoLook || !strings.Contains(msg, want) {
			t.Errorf("%s: code %d, %q; want %q in it", args, code, msg, want)
		}
	}
}
