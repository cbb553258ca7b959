package launch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDescendants finds this test below its parent.
func TestDescendants(t *testing.T) {
	if slices.Contains(descendants(os.Getppid()), os.Getpid()) {
		if args := arguments(os.Getpid()); args[0] != os.Args[0] {
			t.Errorf("got arguments %q, want %q first", args, os.Args[0])
		}
		return
	}
	t.Errorf("did not find process %d below %d", os.Getpid(), os.Getppid())
}

func TestCommand(t *testing.T) {
	j := &Job{MPI: MPICH, Program: "p", Ranks: 2, Args: []string{"-a"}}
	if got, want := strings.Join(j.command(), " "), "mpirun.mpich -np 2 p -a"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	j.Locals = []string{"x", "y"}
	want := "mpirun.mpich -np 1 p -local x -a : -np 1 p -local y -a"
	if got := strings.Join(j.command(), " "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOutput(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	o := &Output{file: file}
	if o.LastNumber("nbody: step ") != -1 {
		t.Errorf("got step %d before the first line, want -1", o.LastNumber("nbody: step "))
	}
	o.Write([]byte("nbody: step 3 of 10\nother\nnbody: step 7 of 10\nlast\n"))
	if o.LastNumber("nbody: step ") != 7 {
		t.Errorf("got step %d, want 7", o.LastNumber("nbody: step "))
	}
	if got := o.Tail(2); got != "nbody: step 7 of 10\nlast" {
		t.Errorf("got tail %q", got)
	}
}
