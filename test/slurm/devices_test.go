package slurm

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/test/cluster"
)

var restoredFrom = regexp.MustCompile(`restored .* epoch=(\d) level=(\w+|".*") `)

// TestDevices: a program on devices continues under the other MPI on another kind of
// device, with its nodes in another order, on fewer nodes with more ranks each
// and on others, and each rank takes its shard from the nearest place that has it.
func TestDevices(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	b.Install(t, module+"apps/transpose")
	there, here := b.dir(t, "devices")
	program := []string{b.bin + "/transpose", "-size", "300x200", "-rounds", "40", "-v"}
	env := []string{"RUSTICL_ENABLE=llvmpipe", "POCL_MAX_PTHREAD_COUNT=1", patient, "HOLDFAST_DEVICE=pocl"}
	k := b.start(t, env, append(program, "-ranks", "1", "-out", there+"/want")...)
	if code := k.wait(); code != 0 {
		t.Fatalf("undisturbed run: exit %d\n%s", code, k.output())
	}
	if err := os.WriteFile(here+"/order", []byte("n2\nn1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	env = append(env, "HOLDFAST_GLOBAL="+there, "HOLDFAST_LOCAL="+cluster.Local, "HOLDFAST_REDUNDANCY=partner:1",
		"HOLDFAST_JOB=devices")
	for _, leg := range []struct {
		name, device string
		mpi          int
		nodes        []string
		order        string // file of SLURM_HOSTFILE
		from         string // epoch and levels of the restore
	}{
		{"first", "pocl", 0, []string{"-N2", "-w", "n1,n2"}, "", ""},
		{"the other way round", "rusticl", 1, []string{"-m", "arbitrary"}, there + "/order", "1 local"},
		{"one node of two", "pocl", 0, []string{"-N1", "-w", "n1"}, "", `2 "partner (rank 0), local (rank 1)"`},
		{"other nodes", "rusticl", 1, []string{"-N2", "-w", "n2,n3"}, "", "3 global"},
	} {
		vars := append(env[:len(env):len(env)], "HOLDFAST_DEVICE="+leg.device)
		if leg.order != "" {
			vars = append(vars, "SLURM_HOSTFILE="+leg.order)
		}
		args := append(program[1:len(program):len(program)], "-out", there+"/got")
		if leg.name != "other nodes" {
			args = append(args, "-stop-after", "10")
		}
		line := append(b.srun(leg.mpi, 2, append(leg.nodes, "--exclusive")), program[0])
		k := b.start(t, vars, append(line, args...)...)
		if code := k.wait(); code != 0 {
			t.Fatalf("%s: exit %d\n%s", leg.name, code, k.output())
		}
		got := ""
		for _, m := range restoredFrom.FindAllStringSubmatch(k.output(), -1) {
			got += strings.Join(m[1:], " ")
		}
		if got != leg.from {
			t.Errorf("%s: restored epoch and level %q, want %q\n%s", leg.name, got, leg.from, k.output())
		}
	}
	if got, want := read(t, here+"/got", ""), read(t, here+"/want", ""); got != want {
		t.Errorf("got\n%s\nthe undisturbed run\n%s", got, want)
	}
}
