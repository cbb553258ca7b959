package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/apps/internal/jobtest"
	"github.com/holdfast-hpc/holdfast/apps/matmul/matfile"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// simulated runs the program on simulated ranks, without checkpoints, and
// returns the bytes it wrote.
func simulated(t *testing.T, ranks int, seed uint64, args string) ([]byte, error) {
	t.Helper()
	jobtest.Device(t)
	out := filepath.Join(t.TempDir(), "c.npy")
	c, err := parse(append(strings.Fields(args), "-progress", "0", "-out", out), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	err = mpitest.Run(ranks, seed, func(world *mpiwrap.Comm) error {
		return c.common.On(context.Background(), "matmul", world, func(ctx context.Context, j *job.Job) error {
			if c.single {
				return multiply[float32](ctx, c, j)
			}
			return multiply[float64](ctx, c, j)
		})
	})
	if err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

// TestAgainstSums multiplies odd shapes on one to six ranks and compares every element with its sum in float64, within
// the bound that verify explains.
func TestAgainstSums(t *testing.T) {
	for i, shape := range [][3]int{{6, 6, 6}, {65, 33, 70}, {7, 200, 9}, {130, 64, 17}} {
		for ranks := 1; ranks <= 6; ranks++ {
			kind := [...]string{"float32", "float64"}[(i+ranks)%2] // each shape and each number of ranks has both
			name := fmt.Sprintf("%v %s on %d", shape, kind, ranks)
			args := fmt.Sprintf("-size %dx%dx%d -type %s -panel 24", shape[0], shape[1], shape[2], kind)
			raw, err := simulated(t, ranks, uint64(ranks), args)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got, err := matfile.ReadNumPy(bytes.NewReader(raw))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			compare(t, name, got, shape)
		}
	}
}

// TestOtherNumbers: a product that three ranks begin, two continue and four end, on grids with other panels, is right
// within the bound of rounding. One that is added up several times is verified by the program itself.
func TestOtherNumbers(t *testing.T) {
	for _, args := range []string{"-size 65x133x70 -panel 4 -type float64", "-size 40x33x50 -panel 4 -repeat 5"} {
		raw := jobtest.Resized(t, 6, func(ranks int, flags string) ([]byte, error) {
			return simulated(t, ranks, 1, args+flags)
		})
		if strings.Contains(args, "repeat") {
			continue
		}
		got, err := matfile.ReadNumPy(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		compare(t, args, got, [3]int{65, 133, 70})
	}
}

// compare compares a product of made matrices with sums in float64.
func compare(t *testing.T, name string, got *matfile.Matrix, shape [3]int) {
	t.Helper()
	m, k, n := shape[0], shape[1], shape[2]
	a, b := made(1, 0, k), made(1, 1, n)
	unit := math.Ldexp(1, -53)
	if got.Single {
		unit = math.Ldexp(1, -24)
	}
	for i := range m {
		for j := range n {
			want, size := 0.0, 0.0
			for l := range k {
				term := a(i, l) * b(l, j)
				want, size = want+term, size+math.Abs(term)
			}
			bound := 2 * float64(k+12) * unit * size
			if off := math.Abs(got.At(i, j) - want); !(off <= bound) {
				t.Fatalf("%s: element %d, %d is off by %g, want at most %g", name, i, j, off, bound)
			}
		}
	}
}

// TestSameBytes: how messages are delayed must not show in the result.
func TestSameBytes(t *testing.T) {
	const args = "-size 50x60x70 -panel 16"
	want, err := simulated(t, 4, 1, args)
	if err != nil {
		t.Fatal(err)
	}
	for seed := uint64(2); seed < 5; seed++ {
		got, err := simulated(t, 4, seed, args)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("seed %d: other bytes than seed 1, %v", seed, err)
		}
	}
}

// TestFiles multiplies .npy files.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.npy"), filepath.Join(dir, "b.npy")
	for name, m := range map[string]*matfile.Matrix{
		a: {Rows: 2, Cols: 3, Data: []float64{1, 0, 2, 0, -1, 0}},
		b: {Rows: 3, Cols: 2, Data: []float64{1, 2, 3, 4, 5, 6}},
	} {
		var npy bytes.Buffer
		if err := m.WriteNumPy(&npy); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, npy.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := simulated(t, 2, 1, "-a "+a+" -b "+b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := matfile.ReadNumPy(bytes.NewReader(raw))
	if err != nil || fmt.Sprint(got.Data) != "[11 14 -3 -4]" {
		t.Errorf("got %v, %v, want [11 14 -3 -4]", got, err)
	}
	if _, err := simulated(t, 1, 1, "-a "+b+" -b "+b); err == nil || !strings.Contains(err.Error(), "3 by 2") {
		t.Errorf("shapes that do not fit: got %v, want the sizes", err)
	}
}

// TestEndsOfTheRange: products too small for the type count as 0 within the bound of
// the check; what is too large is said, before the product where it is an input.
func TestEndsOfTheRange(t *testing.T) {
	dir := t.TempDir()
	for x, want := range map[float64]map[string]string{
		1e-30:  {"float32": "", "float64": ""},
		1e-22:  {"float32": "", "float64": ""},
		1e-162: {"float32": "", "float64": ""},
		1e30:   {"float32": "beyond the range of float32", "float64": ""},
		1e300: {"float32": "element 0, 0 is 1e+300, beyond the range of float32",
			"float64": "beyond the range of float64"},
	} {
		name := filepath.Join(dir, fmt.Sprintf("%g.npy", x))
		var npy bytes.Buffer
		if err := (&matfile.Matrix{Rows: 3, Cols: 3, Data: []float64{x, 2 * x, 3 * x, x, x, x, -x, x, x}}).WriteNumPy(
			&npy); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, npy.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		for kind, want := range want {
			_, err := simulated(t, 1, 1, "-type "+kind+" -a "+name+" -b "+name)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%g in %s: got %v, want %q", x, kind, err, want)
			}
		}
	}
}

// TestVerifyFindsAWrongElement: one changed element of C is found.
func TestVerifyFindsAWrongElement(t *testing.T) {
	c, err := parse([]string{"-size", "40x50x60"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	input, err := c.load()
	if err != nil {
		t.Fatal(err)
	}
	err = mpitest.Run(4, 1, func(world *mpiwrap.Comm) error {
		g := newGrid(4)
		row, col := world.Rank()/2, world.Rank()%2
		s := &summa[float32]{Job: &job.Job{World: world}, config: c, input: input, grid: g,
			rows: share(40, 2, row), cols: share(60, 2, col), sharedA: share(50, 2, col), sharedB: share(50, 2, row),
			panels: g.panels(50, 16)}
		part := func(at func(i, j int) float64, rows, cols span) []float32 {
			x, err := block[float32](at, rows, cols)
			if err != nil {
				t.Error(err)
			}
			return x
		}
		s.a, s.b = part(input.a, s.rows, s.sharedA), part(input.b, s.sharedB, s.cols)
		whole := [2][]float32{part(input.a, s.rows, span{0, 50}), part(input.b, span{0, 50}, s.cols)}
		product := make([]float32, s.rows.len()*s.cols.len())
		for i := range s.rows.len() {
			for j := range s.cols.len() {
				for k := range 50 {
					product[i*s.cols.len()+j] += whole[0][i*50+k] * whole[1][k*s.cols.len()+j]
				}
			}
		}
		if err := s.verify(product); err != nil {
			return fmt.Errorf("a good product: %w", err)
		}
		if world.Rank() == 2 {
			product[17] += 0.01
		}
		if err := s.verify(product); err == nil || !strings.Contains(err.Error(), "row 20 ") {
			return fmt.Errorf("a bad product: got %v, want an error about row 20", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestGrid(t *testing.T) {
	for ranks, want := range map[int]grid{1: {1, 1}, 2: {1, 2}, 4: {2, 2}, 6: {2, 3}, 7: {1, 7}, 12: {3, 4}} {
		if got := newGrid(ranks); got != want {
			t.Errorf("%d ranks: got %v, want %v", ranks, got, want)
		}
	}
	for _, g := range []grid{{1, 1}, {2, 3}, {3, 4}} {
		at := 0
		for _, p := range g.panels(50, 8) {
			a, b := share(50, g.cols, p.ownerCol), share(50, g.rows, p.ownerRow)
			if p.lo != at || p.len() < 1 || p.len() > 8 || p.lo < a.lo || p.hi > a.hi || p.lo < b.lo || p.hi > b.hi {
				t.Errorf("%v: panel %+v after %d crosses a border", g, p, at)
			}
			at = p.hi
		}
		if at != 50 {
			t.Errorf("%v: the panels end at %d", g, at)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"":                           "either -a FILE and -b FILE",
		"-a x":                       "either -a FILE and -b FILE",
		"-a x -b y -size 1x1x1":      "either -a FILE and -b FILE",
		"-size 3x4":                  "-size 3x4",
		"-size 3x4x5x6":              "-size 3x4x5x6",
		"-size 3x0x5":                "-size 3x0x5",
		"-size 1x1x1 -type int":      "-type int",
		"-size 1x1x1 -panel 0":       "-panel 0",
		"-size 1x1x1 -checks -1":     "-checks -1",
		"-size 1x1x1 and":            `unexpected argument "and"`,
		"-a none.npy -b none.npy -v": "none.npy",
	} {
		c, err := parse(strings.Fields(args), io.Discard)
		if err == nil {
			_, err = c.load()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", args, err, want)
		}
	}
	if _, err := simulated(t, 4, 1, "-size 1x8x8"); err == nil || !strings.Contains(err.Error(), "grid of 2 by 2") {
		t.Errorf("got %v, want the grid", err)
	}
}

func TestHelp(t *testing.T) {
	var out strings.Builder
	if _, err := parse([]string{"-help"}, &out); !errors.Is(err, flag.ErrHelp) ||
		!strings.Contains(out.String(), "mpirun -np 4 matmul") {
		t.Errorf("got %v and\n%s", err, out.String())
	}
}
