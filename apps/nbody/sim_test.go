package main

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/apps/internal/jobtest"
	"github.com/holdfast-hpc/holdfast/apps/nbody/bodies"
	"github.com/holdfast-hpc/holdfast/apps/nbody/gravity"
	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// simulated runs the program on simulated ranks, without checkpoints, and
// returns what it wrote.
func simulated(t *testing.T, ranks int, seed uint64, args string) (*bodies.System, []byte) {
	t.Helper()
	raw, err := run(t, ranks, seed, args)
	if err != nil {
		t.Fatal(err)
	}
	s, err := bodies.Read(strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return s, raw
}

// run is simulated for a program that may end with an error.
func run(t *testing.T, ranks int, seed uint64, args string) ([]byte, error) {
	t.Helper()
	jobtest.Device(t)
	out := filepath.Join(t.TempDir(), "out.csv")
	c, err := parse(append(strings.Fields(args), "-progress", "0", "-out", out), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	err = mpitest.Run(ranks, seed, func(world *mpiwrap.Comm) error {
		return c.common.On(context.Background(), "nbody", world, c.simulate)
	})
	if err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

// TestOtherNumbers: bodies that three ranks begin with, two continue with and four end with are where those of one rank
// are, within what rounding can do in each of the two runs.
func TestOtherNumbers(t *testing.T) {
	const args = "-plummer 150 -steps 30 -dt 0.005 -eps 0.1"
	raw := jobtest.Resized(t, 6, func(ranks int, flags string) ([]byte, error) { return run(t, ranks, 1, args+flags) })
	got, err := bodies.Read(strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := simulated(t, 1, 1, args)
	start, err := bodies.Plummer(150, 1)
	if err != nil {
		t.Fatal(err)
	}
	bound := 2 * gravity.Divergence(1, 0.1, start.Pos, 30, 0.005)
	for i := range want.Pos {
		if off := math.Abs(float64(got.Pos[i] - want.Pos[i])); off > bound {
			t.Fatalf("body %d is off by %g, want at most %g", i/4, off, bound)
		}
	}
}

// TestRing compares runs on one to five ranks, with blocks of unequal size,
// with the host in float64; the tolerance is what rounding can do.
func TestRing(t *testing.T) {
	const n, steps, dt, eps = 150, 20, 0.005, 0.1
	s, err := bodies.Plummer(n, 1)
	if err != nil {
		t.Fatal(err)
	}
	sim := jobtest.NewSim(1, eps, s.Pos, s.Vel)
	for range steps {
		sim.Step(dt)
	}
	bound := gravity.Divergence(1, eps, s.Pos, steps, dt)
	for ranks := 1; ranks <= 5; ranks++ {
		got, _ := simulated(t, ranks, 1, "-plummer 150 -steps 20 -dt 0.005 -eps 0.1")
		for i := range n {
			for k := range 3 {
				off := math.Abs(float64(got.Pos[4*i+k]) - sim.Pos[3*i+k])
				if off > bound {
					t.Fatalf("%d ranks: body %d is off by %g, want at most %g", ranks, i, off, bound)
				}
			}
		}
	}
}

// TestSameBytes: how messages are delayed must not show in the result.
func TestSameBytes(t *testing.T) {
	const args = "-plummer 100 -steps 10"
	_, want := simulated(t, 3, 1, args)
	for seed := uint64(2); seed < 6; seed++ {
		if _, got := simulated(t, 3, seed, args); string(got) != string(want) {
			t.Errorf("seed %d gave other bytes than seed 1", seed)
		}
	}
}

func TestTooManyRanks(t *testing.T) {
	jobtest.Device(t)
	c, err := parse([]string{"-plummer", "2"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	err = mpitest.Run(3, 1, func(world *mpiwrap.Comm) error {
		return c.common.On(context.Background(), "nbody", world, c.simulate)
	})
	if err == nil || !strings.Contains(err.Error(), "2 bodies on 3 ranks") {
		t.Errorf("got %v, want an error with both numbers", err)
	}
}

// TestOtherRun: a checkpoint is refused by a run of other bodies, with another step,
// or that is to end before it, each with what differs, and taken by the same run.
func TestOtherRun(t *testing.T) {
	jobtest.Device(t)
	dir := t.TempDir()
	const text = "mass,x,y,z,vx,vy,vz\n1,0,0,0,0,0,0\n0.001,1,0,0,0,1,0\n"
	if err := os.WriteFile(filepath.Join(dir, "two.csv"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	start := func(args string) error {
		c, err := parse(strings.Fields(args+" -progress 0 -job x -global "+dir), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return c.common.On(context.Background(), "nbody", mpiwrap.Single(), c.simulate)
	}
	in := "-in " + dir + "/two.csv"
	if err := start(in + " -steps 40 -stop-after 20"); !errors.Is(err, coordinated.ErrStop) {
		t.Fatalf("first start: %v", err)
	}
	for args, want := range map[string]string{
		in + " -steps 5":          "give -steps",
		in + " -steps 40 -dt 0.5": "dt 0.5",
		"-plummer 3 -steps 40":    "another run",
	} {
		if err := start(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", args, err, want)
		}
	}
	if err := start(in + " -steps 40"); err != nil {
		t.Errorf("the same run: %v", err)
	}
}

// TestLeavesRange: bodies that leave the range of single precision are an error, not
// a result.
func TestLeavesRange(t *testing.T) {
	jobtest.Device(t)
	file := filepath.Join(t.TempDir(), "in.csv")
	if err := os.WriteFile(file, []byte("mass,x,y,z,vx,vy,vz\n1e30,0,0,0,0,0,0\n1e30,1e-6,0,0,0,0,0\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	c, err := parse(strings.Fields("-eps 0 -dt 10 -steps 4 -progress 0 -in "+file), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	err = c.common.On(context.Background(), "nbody", mpiwrap.Single(), c.simulate)
	if err == nil || !strings.Contains(err.Error(), "single precision") {
		t.Errorf("got %v, want an error", err)
	}
}

// TestSnapshots: the snapshot of a step, also the last, is what a run that ends
// there writes, but for the comments.
func TestSnapshots(t *testing.T) {
	dir := t.TempDir()
	simulated(t, 2, 1, "-plummer 64 -steps 4 -every 2 -snapshots "+dir)
	want, _ := simulated(t, 2, 1, "-plummer 64 -steps 4")
	f, err := os.Open(filepath.Join(dir, "step-00000004.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := bodies.Read(f)
	if err != nil || got.Digest() != want.Digest() {
		t.Errorf("the snapshot differs from a run that ends there, %v", err)
	}
	for _, name := range []string{"step-00000000.csv", "step-00000002.csv"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}
