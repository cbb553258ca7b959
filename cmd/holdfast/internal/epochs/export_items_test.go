package epochs

import (
	"archive/zip"
	"encoding/binary"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/internal/npy"
	"github.com/holdfast-hpc/holdfast/storage"
)

// itemsDir has epoch 4 of three ranks with two sets: particles by cell, of which rank 0 has the cells -1 (with one) and
// 5 (none), rank 2 the cells 7 (two) and 300 (one), and a number by name, of which rank 1 has "é" and rank 2 "nine".
// Particle i in the order of ranks is at (i, -i), and of kind i.
func itemsDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	particle := 0
	ranks := []struct {
		cells []layout.Item
		names []string
	}{
		{[]layout.Item{{Key: layout.Key{Int: -1}, Bytes: 24}, {Key: layout.Key{Int: 5}}}, nil},
		{nil, []string{"é"}},
		{[]layout.Item{{Key: layout.Key{Int: 7}, Bytes: 48}, {Key: layout.Key{Int: 300}, Bytes: 24}}, []string{"nine"}},
	}
	writeEpoch(t, dir, 4, len(ranks), func(r int) (storage.Layout, []storage.Section) {
		of := ranks[r]
		cells := layout.Local{Array: layout.Array{Name: "cells", Type: "map[int32][]{At@0 [2]float64;Kind@16 int16;}24",
			Elem: 24, Kind: layout.KeyedInt, Section: "array/cells"}, Items: of.cells}
		names := layout.Local{Array: layout.Array{Name: "names", Type: "map[string]int64", Elem: 8,
			Kind: layout.KeyedString, Section: "array/names"}}
		var particles, numbers []byte
		for range cells.Elems() {
			x := float64(particle)
			particles = binary.LittleEndian.AppendUint64(particles, math.Float64bits(x))
			particles = binary.LittleEndian.AppendUint64(particles, math.Float64bits(-x))
			particles = binary.LittleEndian.AppendUint64(particles, uint64(particle))
			particle++
		}
		for _, n := range of.names {
			names.Items = append(names.Items, layout.Item{Key: layout.Key{Str: n}, Bytes: 8})
			numbers = binary.LittleEndian.AppendUint64(numbers, uint64(len(n)))
		}
		l := storage.Layout{Quiet: true, Arrays: []layout.Local{cells, names}}
		return l, []storage.Section{
			{Name: "array/cells", Size: int64(len(particles)), Source: storage.Bytes(particles)},
			{Name: "array/names", Size: int64(len(numbers)), Source: storage.Bytes(numbers)}}
	})
	return dir
}

// npz reads the members of a file: their headers, and what follows.
func npz(t *testing.T, file string) (heads map[string]string, data map[string][]byte) {
	t.Helper()
	z, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	heads, data = map[string]string{}, map[string][]byte{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r) // it verifies the checksum
		if err != nil || len(b) < 10 || f.Method != zip.Store {
			t.Fatalf("%s: %d bytes, method %d, %v", f.Name, len(b), f.Method, err)
		}
		n := 10 + int(binary.LittleEndian.Uint16(b[8:]))
		if n%64 != 0 || b[n-1] != '\n' {
			t.Errorf("%s: the header has %d bytes", f.Name, n)
		}
		name := strings.TrimSuffix(f.Name, npy.Suffix)
		heads[name], data[name] = strings.TrimSpace(string(b[10:n])), b[n:]
	}
	return heads, data
}

func int64s(b []byte) (out []int64) {
	for ; len(b) > 0; b = b[8:] {
		out = append(out, int64(binary.LittleEndian.Uint64(b)))
	}
	return out
}

// readItems is how a program in Python reads a set.
const readItems = `
import numpy, sys
f = numpy.load(sys.argv[1])
data, starts, counts = f["data"], f["starts"], f["counts"]
for i, (key, rank) in enumerate(zip(f["keys"], f["ranks"])):
    for x in data[starts[i]:][:counts[i]]:
        print(key, rank, x if data.dtype.names is None else (x["At"].tolist(), x["Kind"].tolist()))
`

// TestExportItems: the items of all ranks make up one file by ascending keys, which NumPy reads where it is installed.
func TestExportItems(t *testing.T) {
	dir := itemsDir(t)
	python, err := exec.LookPath("python3")
	numpy := err == nil && exec.Command(python, "-c", "import numpy").Run() == nil
	for _, c := range []struct {
		args, json   string
		keys, ranks  string
		starts, size []int64
		heads        map[string]string
		text         string
	}{
		{"cells", `"items":4`, "\xff\xff\xff\xff\x05\x00\x00\x00\x07\x00\x00\x00\x2c\x01\x00\x00", "0022",
			[]int64{0, 1, 1, 3}, []int64{1, 0, 2, 1},
			map[string]string{"keys": "{'descr': '<i4', 'fortran_order': False, 'shape': (4,), }",
				"data": "{'descr': [('At', '<f8', (2,)), ('Kind', '<i2'), ('', '|V6')], 'fortran_order': False, " +
					"'shape': (4,), }"},
			"-1 0 ([0.0, -0.0], 0)\n7 2 ([1.0, -1.0], 1)\n7 2 ([2.0, -2.0], 2)\n300 2 ([3.0, -3.0], 3)"},
		{"cells --rank 0", `"items":2`, "\xff\xff\xff\xff\x05\x00\x00\x00", "00", []int64{0, 1}, []int64{1, 0}, nil,
			"-1 0 ([0.0, -0.0], 0)"},
		{"names", `"items":2`, "n\x00\x00\x00i\x00\x00\x00n\x00\x00\x00e\x00\x00\x00" +
			"\xe9\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "21", []int64{1, 0}, []int64{1, 1},
			map[string]string{"keys": "{'descr': '<U4', 'fortran_order': False, 'shape': (2,), }",
				"data": "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }"}, "nine 2 4\né 1 2"},
	} {
		file := filepath.Join(t.TempDir(), "set.npz")
		args := append(append([]string{"export", "4"}, strings.Fields(c.args)...), "--from", dir, "-o", file, "--json")
		code, out, msg := run(t, args...)
		if code != 0 || !strings.Contains(out, c.json) {
			t.Fatalf("%s: code %d: %s%s", c.args, code, out, msg)
		}
		heads, data := npz(t, file)
		for name, want := range c.heads {
			if heads[name] != want {
				t.Errorf("%s: the header of %s is %s, want %s", c.args, name, heads[name], want)
			}
		}
		var ranks []byte
		for _, r := range int64s(data["ranks"]) {
			ranks = append(ranks, '0'+byte(r))
		}
		if string(data["keys"]) != c.keys || string(ranks) != c.ranks {
			t.Errorf("%s: keys %q of ranks %s", c.args, data["keys"], ranks)
		}
		for i, s := range int64s(data["starts"]) {
			if s != c.starts[i] || int64s(data["counts"])[i] != c.size[i] {
				t.Errorf("%s: item %d starts at %d", c.args, i, s)
			}
		}
		if !numpy {
			continue
		}
		got, err := exec.Command(python, "-c", readItems, file).CombinedOutput()
		if strings.TrimSpace(string(got)) != c.text || err != nil {
			t.Errorf("%s: NumPy reads %v\n%swant\n%s", c.args, err, got, c.text)
		}
	}
	if !numpy {
		t.Log("not read by NumPy: it is not installed")
	}
}

// TestExportOfItems: what is listed and shown of sets, what cannot be written, and what damage does.
func TestExportOfItems(t *testing.T) {
	dir := itemsDir(t)
	for args, want := range map[string]string{
		"export 4 --from":         "items map[int32][]{At@0",
		"show":                    "items by strings",
		"export 4 --json --from ": `"name":"names","type":"items map[string]int64"`,
	} {
		if code, out, msg := run(t, append(strings.Fields(args), dir)...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: code %d, %s%s; want %q", args, code, out, msg, want)
		}
	}
	t.Chdir(t.TempDir())
	for args, want := range map[string]string{
		"cells -o c.npy":            `"cells" is a set of items: give a file NAME.npz`,
		"cells -o c.raw":            "set of items of 3 ranks: give a file NAME.npz",
		"cells -o c.npz --rank 3":   "ranks 0 to 2",
		"others -o c.npz":           "ranks: choose one with --rank",
		"others -o c.npz --rank 1 ": `has no section "others"`,
	} {
		code, _, msg := run(t, append(append([]string{"export", "4"}, strings.Fields(args)...), "--from", dir)...)
		if code != cli.NoLook || !strings.Contains(msg, want) {
			t.Errorf("%s: code %d, %q; want %q in it", args, code, msg, want)
		}
	}
	packs, err := filepath.Glob(filepath.Join(dir, "epoch-*", "*2*"))
	if err != nil || len(packs) == 0 {
		t.Fatalf("no shard of rank 2: %v", err)
	}
	for _, p := range packs {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(b) / 16 {
			b[16*i] ^= 1
		}
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, msg := run(t, "export", "4", "cells", "--from", dir, "-o", "c.npz"); code != cli.Bad ||
		!strings.Contains(msg, "rank 2 of epoch 4") {
		t.Errorf("a damaged share: code %d, %q", code, msg)
	}
	if left, _ := os.ReadDir("."); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
