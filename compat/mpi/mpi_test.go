package mpi

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// port builds a program written for empi with one import line changed.
func port(t *testing.T, name string) string {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("testdata", name, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	const old, now = `"github.com/emer/empi/mpi"`, `"github.com/holdfast-hpc/holdfast/compat/mpi"`
	if n := strings.Count(string(src), old+"\n"); n != 1 {
		t.Fatalf("%d import lines to change, want 1", n)
	}
	dir := t.TempDir()
	file, program := filepath.Join(dir, "main.go"), filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(strings.Replace(string(src), old, now, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", program, file).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

func TestProgramWrittenForEmpi(t *testing.T) {
	program := port(t, "gradients")
	const line = "samples 64: y = 3.0000 x + 1.0000"
	t.Run("alone", func(t *testing.T) {
		out, err := exec.Command(program).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "procs 1 "+line) {
			t.Errorf("%v\n%s", err, out)
		}
	})
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) {
			if err := l.Available(); err != nil {
				t.Skip(err)
			}
			out, err := l.Job(2, 10*time.Minute, program).CombinedOutput(t.Context())
			if err != nil || strings.Count(out, "procs 2 "+line) != 1 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// one makes the package work on a simulated world of one rank.
func one(t *testing.T) *Comm {
	t.Helper()
	LogErrors = false
	Use(mpiwrap.Single())
	t.Cleanup(func() { state.world, state.on = nil, false })
	cm, err := NewComm(nil)
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

// TestWhereEmpiDoesNothing: with one process the calls compute the right answer,
// where empi's default build leaves dest as it was.
func TestWhereEmpiDoesNothing(t *testing.T) {
	cm := one(t)
	got := make([]float64, 2)
	for name, call := range map[string]func() error{
		"AllReduceF64": func() error { return cm.AllReduceF64(OpSum, got, []float64{3, 4}) },
		"ReduceF64":    func() error { return cm.ReduceF64(Root, OpMax, got, []float64{3, 4}) },
		"AllGatherF64": func() error { return cm.AllGatherF64(got, []float64{3, 4}) },
		"GatherF64":    func() error { return cm.GatherF64(Root, got, []float64{3, 4}) },
		"ScatterF64":   func() error { return cm.ScatterF64(Root, got, []float64{3, 4}) },
		"send to self": func() error {
			return errors.Join(cm.SendF64(0, 1, []float64{3, 4}), cm.RecvF64(0, 1, got))
		},
	} {
		clear(got)
		if err := call(); err != nil || got[0] != 3 || got[1] != 4 {
			t.Errorf("%s: got %v, %v; want [3 4]", name, got, err)
		}
	}
}

func TestWhereEmpiPanicsOrOverruns(t *testing.T) {
	cm := one(t)
	for name, c := range map[string]struct{ got, want error }{
		"short dest of AllGather": {cm.AllGatherF64(nil, []float64{1}), mpiwrap.ErrLength},
		"short dest of AllReduce": {cm.AllReduceInt(OpSum, []int{}, []int{1}), mpiwrap.ErrLength},
		"short orig of Scatter":   {cm.ScatterI8(0, []int8{1, 2}, []int8{1}), mpiwrap.ErrLength},
		"unknown operator":        {cm.AllReduceU8(Op(42), []uint8{1}, []uint8{2}), mpiwrap.ErrOp},
		"bitwise on floats":       {cm.AllReduceF32(OpBAND, []float32{1}, []float32{2}), mpiwrap.ErrOp},
		"rank":                    {cm.SendC64(1, 0, nil), mpiwrap.ErrRank},
		"empty slices": {errors.Join(cm.SendU16(0, 0, nil), cm.RecvU16(0, 0, nil), cm.BcastI64(0, nil)),
			nil},
		"same slice": {func() error { x := []int32{5}; return cm.AllReduceI32(OpProd, x, x) }(), nil},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: got %v, want %v", name, c.got, c.want)
		}
	}
}

func TestBeforeInit(t *testing.T) {
	LogErrors = false
	if WorldRank() != 0 || WorldSize() != 1 || IsOn() {
		t.Error("a process before Init is not rank 0 of 1")
	}
	cm, err := NewComm(nil)
	if !errors.Is(err, ErrNotInitialized) || !errors.Is(cm.Barrier(), ErrNotInitialized) || cm.Size() != 0 {
		t.Errorf("got %v, want ErrNotInitialized", err)
	}
}

func TestNotAMember(t *testing.T) {
	LogErrors = false
	cm := &Comm{err: ErrNotMember}
	if cm.Rank() != -1 || cm.Size() != 0 || !errors.Is(cm.BcastF64(0, nil), ErrNotMember) ||
		!errors.Is(cm.Abort(), ErrNotMember) {
		t.Error("calls of a rank that is no member must say so")
	}
}
