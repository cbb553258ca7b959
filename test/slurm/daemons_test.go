package slurm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/test/cluster"
	"github.com/holdfast-hpc/holdfast/test/launch"
)

// TestDaemons runs the C example on two nodes. holdfast run starts a daemon on each, in a step of its
// own; a rank is killed, the program is restarted, and the daemons end with the job.
func TestDaemons(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	lib := t.TempDir()
	if err := launch.Build(lib); err != nil {
		t.Fatal(err)
	}
	for i, l := range mpirun.Launchers() {
		t.Run(mpis[i].name, func(t *testing.T) {
			if !strings.Contains(l.Compiler(), mpis[i].name) {
				t.Fatalf("launcher %s is not of %s", l.Name, mpis[i].name)
			}
			heat := filepath.Join(b.PFS(), "bin", "heat-"+mpis[i].name)
			if out, err := exec.Command(l.Compiler(), "-std=c11", "-O1", "-I../../lib", "../../examples/heat-c/heat.c",
				filepath.Join(lib, "libholdfast.a"), "-o", heat).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			program := b.bin + "/heat-" + mpis[i].name
			j := &job{bed: b, mpi: i}
			j.there, j.here = b.dir(t, "daemons-"+mpis[i].name)
			if err := os.Mkdir(j.here+"/ckpt", 0o755); err != nil {
				t.Fatal(err)
			}
			j.local = cluster.Local + "/" + filepath.Base(j.here)
			j.makeLocal(t)
			flags := []string{"-N2", "--ntasks-per-node=1"}
			k := b.start(t, []string{patient, "HOLDFAST_BIN=" + b.bin + "/holdfast", "HOLDFAST_GLOBAL=" + j.there},
				append(b.srun(i, 2, flags), program, "48", "120", j.there+"/want")...)
			if code := k.wait(); code != 0 {
				t.Fatalf("undisturbed run: exit %d\n%s", code, k.output())
			}
			j.want = read(t, j.here+"/want", k.output())

			line := append([]string{b.bin + "/holdfast", "run", "--daemons", "--start-timeout", startTimeout, "--"},
				append(b.srun(i, 2, flags), program, "48", "120", j.there+"/result", "50")...)
			j.sbatch(t, "#!/bin/bash\nexec "+strings.Join(line, " ")+"\n", []string{"-N2", "--no-kill", "-t", "10"},
				[]string{patient, "HOLDFAST_GLOBAL=" + j.there + "/ckpt", "HOLDFAST_LOCAL=" + j.local,
					"HOLDFAST_REDUNDANCY=partner:1", "HOLDFAST_INTERVAL=500ms"}, nil)
			j.says(t, "node daemons are ready: n1", 1)
			j.says(t, "level=partner", 1)
			b.Verb(t, "run-on", "n2", "pkill", "-9", "-x", "heat-"+mpis[i].name)
			j.ends(t)
			j.held(t, ", n2, process", "computing again")
			if strings.Count(j.log(), "begins at step 0") != 1 || strings.Contains(j.log(), "another daemon serves") {
				t.Errorf("the program began anew, or its ranks started daemons:\n%s", j.log())
			}
			poll(t, "the end of the daemons", nil, j.log, func() bool {
				return strings.TrimSpace(b.Run(t, "squeue", "-h", "-o", "%i")) == ""
			})
		})
	}
}
