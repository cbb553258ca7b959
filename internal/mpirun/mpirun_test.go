package mpirun

import (
	"strings"
	"testing"
	"time"
)

func TestCommand(t *testing.T) {
	l := Launcher{Name: "x", args: []string{"-a"}, yield: []string{"-y"}}
	for _, c := range []struct {
		l     Launcher
		flags []string
		parts []Part
		want  string
	}{
		{l, nil, []Part{{2, []string{"p", "-b"}}}, "mpirun.x -a -np 2 p -b"},
		{l, []string{"-f"}, []Part{{1, []string{"p"}}, {3, []string{"q", "r"}}}, "mpirun.x -a -f -np 1 p : -np 3 q r"},
		{l.Yielding().Yielding(), nil, []Part{{1, []string{"p"}}}, "mpirun.x -a -y -np 1 p"},
		{MPICH, nil, []Part{{2, []string{"p"}}}, "mpirun.mpich -np 2 p"},
	} {
		if got := strings.Join(c.l.Command(c.flags, c.parts...), " "); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	if got := strings.Join(l.args, " "); got != "-a" {
		t.Errorf("Yielding changed the launcher it was called on: %q", got)
	}
}

func TestEnviron(t *testing.T) {
	t.Setenv("HWLOC_COMPONENTS", "x86")
	last := ""
	for _, kv := range Environ("HWLOC_COMPONENTS=mine") {
		if strings.HasPrefix(kv, "HWLOC_COMPONENTS=") {
			last = kv
		}
	}
	if last != "HWLOC_COMPONENTS=mine" {
		t.Errorf("got %q, want the caller's last", last)
	}
}

func TestAvailable(t *testing.T) {
	if err := (Launcher{Name: "none", Title: "No MPI"}).Available(); err == nil ||
		!strings.Contains(err.Error(), "make setup") {
		t.Errorf("got %v, want an error with the remedy", err)
	}
}

func TestBoundTo(t *testing.T) {
	for want, l := range map[string]Launcher{
		"mpirun.x --bind-to numa -a -np 2 p": {Name: "x", args: []string{"--bind-to", "none", "-a"}},
		"mpirun.mpich -bind-to numa -np 2 p": MPICH,
	} {
		if got := strings.Join(l.BoundTo("numa").Command(nil, Part{2, []string{"p"}}), " "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	OpenMPI.BoundTo("numa")
	if got := strings.Join(OpenMPI.args, " "); strings.Contains(got, "numa") {
		t.Errorf("BoundTo changed the launcher it was called on: %q", got)
	}
}

// TestOutput: what a job prints comes back, an error has the end of what it
// complains of, and one that hangs is ended.
func TestOutput(t *testing.T) {
	sh := func(script string) Job {
		return Job{Line: []string{"sh", "-c", script}, Env: []string{"A=b"}, Limit: time.Hour}
	}
	if out, err := sh("echo $A; echo no >&2").Output(t.Context()); err != nil || out != "b\n" {
		t.Errorf("got %q, %v", out, err)
	}
	for script, want := range map[string]string{"echo broken >&2; exit 3": "exit status 3: broken",
		"exit 3": "exit status 3"} {
		if _, err := sh(script).Output(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", script, err, want)
		}
	}
	hang := sh("exec sleep 3600")
	hang.Limit = 1 // ns
	if _, err := hang.Output(t.Context()); err == nil || !strings.Contains(err.Error(), "no end after 1ns") {
		t.Errorf("got %v, want the limit", err)
	}
}
