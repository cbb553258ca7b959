package jobs

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// TestRunRefuses: what cannot work is said before anything is started.
func TestRunRefuses(t *testing.T) {
	t.Setenv("SLURM_JOB_ID", "")
	for line, want := range map[string]string{
		"--requeue -- ./app":  "not a Slurm job",
		"--spares 1 -- ./app": "no nodes to keep",
		"--spares 2 -- mpirun.openmpi --host a,b -np 2 ./app": "the job has 2 nodes",
		"--spares 1 -- srun -n2 ./app":                        "inside sbatch or salloc",
		"-- srun -n2":                                         "no program",
		"-- /nosuch/program":                                  "no such file",
		"--interface nosuch0 -- ./app":                        "nosuch0",
	} {
		var out, errs bytes.Buffer
		code := Run(t.Context(), append([]string{"run"}, strings.Fields(line)...), &out, &errs)
		if code != cli.NoLook || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: got code %d and %q, want 2 and %q", line, code, errs.String(), want)
		}
	}
}

// TestNoNodeList: without SLURM_JOB_NODELIST the nodes are those that Slurm names, and
// a program is started again as it was if Slurm names none.
func TestNoNodeList(t *testing.T) {
	t.Setenv("SLURM_JOB_ID", "5")
	t.Setenv("SLURM_JOB_NODELIST", "")
	t.Setenv("HOLDFAST_GLOBAL", t.TempDir())
	for list, want := range map[string]string{"n[1-2]": "-w n[1-2]", "": "start 2: srun -n2 ./app\n"} {
		commands(t, map[string]string{
			"scontrol": `case "$2" in config) echo "KillWait = 30 sec"; echo "SlurmdPort = 6818";; ` +
				`*) echo "JobState=RUNNING Restarts=0 NodeList=` + list + `";; esac`,
			"sinfo": `for n in n1 n2; do echo "$n|allocated|none"; done`,
			"srun":  notThere + `[ -e $0.fell ] && exit 0; touch $0.fell; kill -9 $$`,
		})
		errs := &testbuf.Buffer{}
		code := Run(t.Context(), []string{"run", "--interface=127.0.0.1", "--", "srun", "-n2", "./app"}, io.Discard,
			errs)
		if code != 0 || !strings.Contains(errs.String(), want) {
			t.Errorf("nodes %q: got code %d, want %q\n%s", list, code, want, errs)
		}
	}
}

// TestRunRefusesInJob: the same inside a job.
func TestRunRefusesInJob(t *testing.T) {
	commands(t, map[string]string{
		"scontrol": `case "$2" in config) echo "KillWait = 30 sec"; echo "SlurmdTimeout = 300 sec"; ` +
			`echo "SlurmdPort = 6818";; *) echo "JobState=RUNNING Restarts=0 Requeue=0";; esac`,
	})
	t.Setenv("SLURM_JOB_ID", "5")
	t.Setenv("SLURM_JOB_NODELIST", "n[1-4]")
	for line, want := range map[string]string{
		"--spares 4 -- srun -n2 ./app":              "--spares 4: the job has 4 nodes",
		"--spares 1 -- srun -N4 ./app":              "4 nodes for the program and 1 spare",
		"--min-nodes 5 --requeue -- srun -N4 ./app": "--min-nodes 5: the job has 4 nodes",
		"--interface nosuch0 -- srun --ntasks-per-node 2 -n 4 -N 3 ./app": "4 ranks do not divide evenly " +
			"among 3 nodes, and srun takes --ntasks-per-node 2 as an upper limit; give it -N 2, or -n 6",
		"--min-ranks 5 -- srun -n4 ./app":           "--min-ranks 5: the program has 4 ranks",
		"--min-ranks -1 -- srun -n4 ./app":          "want 0 or more",
		"--min-ranks 2 -- srun --multi-prog a.conf": "starts several programs",
		"--min-ranks 2 -- mpirun.openmpi ./app":     "the number of ranks is not known; give mpirun.openmpi -n",
		"-- srun --mpi=none -n4 ./app": "--mpi=pmix for Open MPI, --mpi=pmi2 " +
			"for MPICH",
		"--requeue --interface nosuch0 -- srun -n4 ./app": "submitted with --no-requeue",
	} {
		var out, errs bytes.Buffer
		code := Run(t.Context(), append([]string{"run"}, strings.Fields(line)...), &out, &errs)
		if code != cli.NoLook || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: got code %d and %q, want 2 and %q", line, code, errs.String(), want)
		}
	}
}

// notThere begins an srun on whose other nodes this command is not installed.
const notThere = `case "$*" in *--version) exit 2;; esac
`

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

// TestStartFails: a start that cannot come to Open any more is ended long before
// one that may only be slow would be.
func TestStartFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the slurmd of every node
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("SLURM_JOB_ID", "5")
	t.Setenv("SLURM_JOB_NODELIST", "n[1-3]")
	t.Setenv("HOLDFAST_GLOBAL", t.TempDir())
	slurm := fmt.Sprintf(`case "$*" in
*config*) echo "KillWait = 30 sec"; echo "SlurmdTimeout = 300 sec"; echo "SlurmdPort = %d";;
*node*) for n in n1 n2 n3; do echo "NodeName=$n NodeAddr=127.0.0.1"; done;;
*) echo "JobState=RUNNING Restarts=0 Requeue=0";;
esac`, l.Addr().(*net.TCPAddr).Port)
	states := `for n in n1 n2 n3; do echo "$n|allocated|none"; done`
	hangs := notThere + `case "$*" in
*"-w n2 /bin/true") exit 1;;
*/bin/true) exit 0;;
*"-w n[1,3]"*) [ "$SLURM_PMIX_DIRECT_CONN $SLURM_JOB_NODELIST" = "false n[1,3]" ]; exit;;
esac
exec sleep 100`
	taskFails := notThere + `[ $0.fell ] && [ -e $0.fell ] && exit 0
touch $0.fell
echo "srun: error: n2: task 1: Exited with exit code 127" >&2
exec sleep 100`
	for _, c := range []struct {
		name, srun string
		says       []string
	}{
		{"a node is dead", hangs, []string{"node n2 is no longer used: it starts nothing",
			"ending start 1: it waits for nodes that are dead: n2",
			"-w n[1,3] -x n2", "the program has ended"}},
		{"a task has ended", taskFails, []string{"ending start 1: before the program reached Open, task 1: Exited " +
			"with exit code 127 (node n2)", "start 2: ", "the program has ended"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			commands(t, map[string]string{"scontrol": slurm, "sinfo": states, "srun": c.srun})
			errs := &testbuf.Buffer{}
			code := Run(t.Context(), []string{"run", "--interface=127.0.0.1", "--spares=1", "--start-timeout=20s", "--",
				"srun", "-n2", "./app"}, io.Discard, errs)
			if code != 0 {
				t.Errorf("got code %d\n%s", code, errs)
			}
			for _, text := range c.says {
				if !strings.Contains(errs.String(), text) {
					t.Errorf("got no %q\n%s", text, errs)
				}
			}
		})
	}
}
