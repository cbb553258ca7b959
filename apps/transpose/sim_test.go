package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/apps/internal/jobtest"
	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// simulated runs the program on simulated ranks and returns what it wrote.
func simulated(t *testing.T, ranks int, args string) ([]byte, error) {
	t.Helper()
	jobtest.Device(t)
	out := filepath.Join(t.TempDir(), "out")
	c, err := parse(append(strings.Fields(args), "-progress", "0", "-out", out), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	err = mpitest.Run(ranks, 1, func(world *mpiwrap.Comm) error {
		return c.common.On(context.Background(), "transpose", world, c.transpose)
	})
	if err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

// TestOtherNumbers: on three ranks, then two, then four it comes to the bytes of one.
func TestOtherNumbers(t *testing.T) {
	const args = "-rounds 30 -size 33x64"
	want, err := simulated(t, 1, args)
	if err != nil {
		t.Fatal(err)
	}
	for after := 5; after <= 6; after++ { // the matrix lies the other way after each round
		got := jobtest.Resized(t, after, func(ranks int, flags string) ([]byte, error) {
			return simulated(t, ranks, args+flags)
		})
		if !bytes.Equal(got, want) {
			t.Errorf("stopped after %d: got %s, want %s", after, got, want)
		}
	}
}

// TestTurns turns matrices of odd sizes on one to five ranks, an odd and an even number of times;
// the result is the same for any number of ranks.
func TestTurns(t *testing.T) {
	for _, size := range []string{"5x5", "33x64", "100x7", "31x97"} {
		for rounds := 4; rounds <= 5; rounds++ {
			var want []byte
			for ranks := 1; ranks <= 5; ranks++ {
				got, err := simulated(t, ranks, fmt.Sprint("-rounds ", rounds, " -size ", size))
				if err != nil {
					t.Fatalf("%s on %d ranks: %v", size, ranks, err)
				}
				if want == nil {
					want = got
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s on %d ranks: got %s, want %s", size, ranks, got, want)
				}
			}
		}
	}
}

// TestCheckFinds: an element that was changed and a round that was done twice
// are found.
func TestCheckFinds(t *testing.T) {
	jobtest.Device(t)
	c, err := parse([]string{"-size", "40x40"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	body := func(_ context.Context, j *job.Job) error {
		x := &transposer{Job: j, config: c}
		if err := errors.Join(x.prepare(), x.build(), x.fill(), x.turnOver()); err != nil {
			return err
		}
		x.round = 1
		if _, err := x.check(); err != nil {
			return fmt.Errorf("a good matrix: %w", err)
		}
		x.round = 3
		if _, err := x.check(); err == nil {
			return errors.New("two rounds too few were not found")
		}
		x.round = 1
		if err := x.queue.Write(x.matrix, 4*(3*40+9), gpustate.Bytes([]uint32{5})); err != nil {
			return err
		}
		if _, err := x.check(); err == nil || !strings.Contains(err.Error(), "element 3, 9 is 5") {
			return fmt.Errorf("got %v, want element 3, 9", err)
		}
		return nil
	}
	err = mpitest.Run(1, 1, func(world *mpiwrap.Comm) error {
		return c.common.On(context.Background(), "transpose", world, body)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestBeyond: a checkpoint that is further than the run is to go is refused.
func TestBeyond(t *testing.T) {
	jobtest.Device(t)
	dir := t.TempDir()
	start := func(args string) error {
		c, err := parse(strings.Fields("-size 20x30 -progress 0 -job x -global "+dir+" "+args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return c.common.On(context.Background(), "transpose", mpiwrap.Single(), c.transpose)
	}
	if err := start("-rounds 40 -stop-after 20"); !errors.Is(err, coordinated.ErrStop) {
		t.Fatalf("first start: %v", err)
	}
	if err := start("-rounds 7"); err == nil || !strings.Contains(err.Error(), "give -rounds") {
		t.Errorf("got %v, want an error with the remedy", err)
	}
	if err := start("-rounds 40"); err != nil {
		t.Error(err)
	}
}

func TestRestart(t *testing.T) {
	jobtest.Restart{Name: "transpose", Args: "-size 1000x800 -rounds 100", Ranks: 3,
		Step: "transpose: step ", At: 15, Back: true}.Run(t)
}

func TestParseRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"-size 3":    "-size 3:",
		"-size 0x3":  "-size 0x3",
		"-size 3x4x": "-size 3x4x",
		"-rounds -1": "-rounds -1",
		"more":       `unexpected argument "more"`,
	} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", args, err, want)
		}
	}
	if _, err := simulated(t, 3, "-size 2x9"); err == nil || !strings.Contains(err.Error(), "2 by 9 on 3 ranks") {
		t.Errorf("got %v, want an error with the numbers", err)
	}
}

func TestHelp(t *testing.T) {
	var out strings.Builder
	if _, err := parse([]string{"-help"}, &out); !errors.Is(err, flag.ErrHelp) ||
		!strings.Contains(out.String(), "mpirun -np 4 transpose") {
		t.Errorf("got %v and\n%s", err, out.String())
	}
}
