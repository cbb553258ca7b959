package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/apps/internal/jobtest"
	"github.com/holdfast-hpc/holdfast/apps/smithwaterman/align"
	"github.com/holdfast-hpc/holdfast/apps/smithwaterman/kernel"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// related returns two random sequences that share parts.
func related(seed uint64, n int) (a, b []byte) {
	rng := rand.New(rand.NewPCG(seed, 3))
	for len(a) < n {
		c := byte(rng.IntN(4))
		switch rng.IntN(12) {
		case 0:
			a = append(a, c)
		case 1:
			b = append(b, c)
		case 2:
			a, b = append(a, c), append(b, byte(rng.IntN(4)))
		default:
			a, b = append(a, c), append(b, c)
		}
	}
	return a, b
}

func dnaScoring(t *testing.T) *align.Scoring {
	t.Helper()
	s, err := align.Matrix("dna", 10, 1)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEngine computes matrices of sizes around those of tiles in one and in two
// parts on every device and gets the host's alignment.
func TestEngine(t *testing.T) {
	infos, err := gpustate.Devices()
	if err != nil || len(infos) == 0 {
		t.Skipf("no device here (%v); make setup installs PoCL", err)
	}
	s := dnaScoring(t)
	for _, info := range infos {
		for _, n := range []int{1, 63, 64, 65, 511, 1025, 2000} {
			t.Run(fmt.Sprintf("%s %d", info.Platform, n), func(t *testing.T) {
				a, b := related(uint64(n), n)
				if len(b) < 2 {
					b = append(b, 1, 2)
				}
				want := s.Local(a, b)
				for _, split := range []int{0, 1, len(b) / 2, max(0, len(b)-kernel.Cols)} {
					got := inParts(t, info, s, a, b, split)
					if got.Score != want.Score || fmt.Sprint(got) != fmt.Sprint(want) && want.Score > 0 {
						t.Fatalf("split at %d: got %+v, want %+v", split, got, want)
					}
				}
			})
		}
	}
}

// inParts aligns with the columns split in two parts on two devices.
func inParts(t *testing.T, info gpustate.Info, s *align.Scoring, a, b []byte, split int) *align.Alignment {
	t.Helper()
	var parts []*engine
	var best align.Best
	records := make([][]int32, (len(a)+kernel.Rows-1)/kernel.Rows)
	for _, r := range [][2]int{{0, split}, {split, len(b)}} {
		if r[0] == r[1] {
			continue
		}
		dev, err := gpustate.Open(gpustate.Select{Kind: info.Kind, Platform: info.Platform, Name: info.Name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		e, err := newEngine(&job.Device{Device: dev}, s, part{a: a, b: b[r[0]:r[1]], begin: r[0], keep: true})
		if err == nil {
			err = e.build(&job.Device{Device: dev})
		}
		if err != nil {
			t.Fatal(err)
		}
		compute(t, e, records)
		cell, err := e.bestCell()
		if err != nil {
			t.Fatal(err)
		}
		if cell.Better(best) {
			best = cell
		}
		parts = append(parts, e)
	}
	w := &align.Walk{Row: best.Row, Col: best.Col}
	for i := len(parts) - 1; i >= 0 && w.State != align.Done && w.Row >= 0; i-- {
		if w.Col >= parts[i].begin {
			if err := parts[i].back(w); err != nil {
				t.Fatal(err)
			}
		}
	}
	return align.FromWalk(best.Score, w)
}

// compute computes a part; records holds the left borders and then the right ones.
func compute(t *testing.T, e *engine, records [][]int32) {
	t.Helper()
	if err := e.prepare(); err != nil {
		t.Fatal(err)
	}
	for d := range e.diagonals() {
		if d < e.strips() && records[d] != nil {
			if err := e.setBorder(d, records[d]); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.launch(d); err != nil {
			t.Fatal(err)
		}
		if s := d - e.tiles() + 1; s >= 0 {
			records[s] = make([]int32, kernel.Border)
			if err := e.rightBorder(s, records[s]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// BenchmarkSweep computes a matrix with everything kept; MB/s are millions of
// cells a second.
func BenchmarkSweep(b *testing.B) {
	jobtest.EachDevice(b, func(b *testing.B, dev *gpustate.Device) {
		s, err := align.Matrix("dna", 10, 1)
		if err != nil {
			b.Fatal(err)
		}
		n := 4096
		if dev.Info().Type == "gpu" {
			n = 1 << 17
		}
		x, y := related(1, n)
		e, err := newEngine(&job.Device{Device: dev}, s, part{a: x, b: y, keep: true})
		if err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(e.build(&job.Device{Device: dev}), e.prepare()); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(x) * len(y)))
		for b.Loop() {
			for d := range e.diagonals() {
				if err := e.launch(d); err != nil {
					b.Fatal(err)
				}
			}
			if err := e.queue.Finish(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
