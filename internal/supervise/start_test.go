package supervise

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// failing is a file that takes nothing.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestTaskWatch: what srun writes goes through, and the first task that ended with an
// error is found however the text comes in pieces.
func TestTaskWatch(t *testing.T) {
	text := "n1: task 3: Killed\nsrun: error: Node failure on n2\n" + strings.Repeat("x", 3*child.LongestLine) +
		"srun: error: n4: task 4: Killed\n" +
		"srun: error: n3: tasks 2,4-5: Exited with exit code 2\nsrun: error: n4: task 6: Killed\n"
	for size := 1; size < len(text); size = 3*size + 1 {
		var out bytes.Buffer
		var node, why string
		tells := 0
		f := taskWatch(&out, func(n, text string) { tells, node, why = tells+1, n, text })
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if _, err := f.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		full := taskWatch(failing{}, func(string, string) {}) // the disk of the log is full
		if n, err := full.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("on a full disk: got %d, %v", n, err)
		}
		if tells != 1 || node != "n3" || why != "tasks 2,4-5: Exited with exit code 2 (node n3)" ||
			out.String() != text {
			t.Errorf("pieces of %d: told %d times, %q, %q", size, tells, node, why)
		}
	}
}

// TestPmixVars: direct connections of the plugin are switched off only where the
// nodes of the step are known, and said.
func TestPmixVars(t *testing.T) {
	const off = "SLURM_PMIX_DIRECT_CONN=false"
	for _, c := range []struct {
		line   string
		env    string // variable that the user has set
		starts int
		nodes  string
		want   string
	}{
		{"srun -n4 ./app", "", 1, "a b c", off},
		{"srun -n4 -m block:cyclic ./app", "", 1, "a b c", off},
		{"srun -n4 -m arbitrary ./app", "", 1, "a b c", ""},
		{"srun -N2 -n4 ./app", "", 1, "a b", ""},
		{"srun -n4 -x a ./app", "", 1, "a b c", ""},
		{"srun -n4 --nodelist=a ./app", "", 1, "a b c", ""},
		{"srun -N3 -n4 ./app", "SLURM_HOSTFILE", 1, "a b c", ""},
		{"srun -N3 -n4 ./app", "SLURM_PMIX_FENCE", 1, "a b c", ""},
		{"srun -N2 -n4 -x a ./app", "", 2, "a c", "SLURM_JOB_NODELIST=a,c " + off},
		{"srun -N2 -n4 ./app", "SLURM_PMIX_DIRECT_CONN", 2, "a c", "SLURM_JOB_NODELIST=a,c"},
		{"mpirun.openmpi -np 4 ./app", "", 2, "a c", ""},
	} {
		t.Run(c.line, func(t *testing.T) {
			if c.env != "" {
				t.Setenv(c.env, "x")
			}
			cmd, err := parseCommand(strings.Fields(c.line))
			if err != nil {
				t.Fatal(err)
			}
			s := &setup{cmd: cmd, cfg: decide.Config{Job: &slurm.Job{}, Nodes: []string{"a", "b", "c"}}}
			a := decide.Start{Number: c.starts, Nodes: strings.Fields(c.nodes)}
			if got := strings.Join(s.pmixVars(a), " "); got != c.want {
				t.Errorf("start %d on %s: got %q, want %q", c.starts, c.nodes, got, c.want)
			}
		})
	}
}

// TestPostAfterEnd: the machine hears nothing of a start that is over, although it listens.
func TestPostAfterEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		r := &run{events: make(chan decide.Event, 1)}
		if r.post(ctx, decide.Lost{}); len(r.events) > 0 {
			t.Fatal("it hears that rank 0 is lost")
		}
	}
}

// commands puts shell scripts into PATH, by name.
func commands(t *testing.T, bodies map[string]string) {
	t.Helper()
	bin := t.TempDir()
	for name, body := range bodies {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}
