package slurm

import (
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/test/cluster"
)

// TestElastic runs slurm/elastic.sh on four nodes without a spare. Two die, one after the other: the
// program continues on three ranks and on two, and ends there with the bytes of an undisturbed run.
// In a second job they die together, the program continues on two ranks, they come back, the job goes
// into the queue and continues on four ranks, to the same bytes.
func TestElastic(t *testing.T) {
	t.Parallel()
	b := newBed(t, 4)
	const mpi = 0
	program := b.Install(t, module+"test/slurm/elastic") + "/elastic"
	there, here := b.dir(t, "elastic-undisturbed")
	k := b.start(t, []string{patient, "HOLDFAST_GLOBAL=" + there},
		append(b.srun(mpi, 3, nil), program, "-result", there+"/result")...)
	if code := k.wait(); code != 0 {
		t.Fatalf("undisturbed run: exit %d\n%s", code, k.output())
	}
	want := read(t, here+"/result", k.output())
	const three, two = "only 3 of 4 nodes are left: the program continues on 3 of 4 ranks",
		"only 2 of 4 nodes are left: the program continues on 2 of 4 ranks"
	submit := func(name string) *job {
		j := &job{bed: b, mpi: mpi, want: want}
		j.there, j.here = b.dir(t, name)
		vars := append([]string{"HOLDFAST=" + b.bin + "/holdfast", "MPI_PLUGIN=" + mpis[mpi].plugin,
			"HOLDFAST_GLOBAL=" + j.there + "/ckpt", "HOLDFAST_INTERVAL=1s",
			"LOCAL_DISK=" + cluster.Local}, mpis[mpi].env...)
		j.sbatch(t, b.read(t, "../../slurm/elastic.sh"), []string{"-N4", "--ntasks-per-node=1", "-t", "20"}, vars,
			[]string{"2", program, "-result", j.there + "/result", "-hold", j.there + "/go"})
		j.says(t, "level=global", 2)
		return j
	}

	last := submit("elastic-to-two")
	b.Verb(t, "kill", "n3")
	last.says(t, "of 3: restored=true", 3)
	b.Verb(t, "kill", "n2")
	last.says(t, "of 2: restored=true", 2)
	last.proceed(t)
	last.ends(t)
	last.held(t, three, two)
	if info := b.Run(t, "scontrol", "show", "job", last.id); !strings.Contains(info, "Restarts=0") {
		t.Errorf("the job that was to end on two nodes was requeued\n%s", info)
	}
	b.Verb(t, "revive", "n2")
	b.Verb(t, "revive", "n3")

	j := submit("elastic")
	b.Verb(t, "kill", "n3")
	b.Verb(t, "kill", "n2")
	j.says(t, "of 2: restored=true", 2)
	b.Verb(t, "revive", "n2")
	b.Verb(t, "revive", "n3")
	j.Run(t, "scancel", "--batch", "--signal", "TERM", j.id)
	j.says(t, "of 4: restored=true", 4)
	j.proceed(t)
	j.ends(t)
	j.held(t, two, "stopped after the final checkpoint")
	if n := strings.Count(j.log(), "of 4: restored=false"); n != 4 {
		t.Errorf("%d ranks of four began from nothing, want 4 of the first start:\n%s", n, j.log())
	}
}
