package slurm

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/test/launch"
)

// counting is a CUDA program that launches a kernel each millisecond, and what it says at its end: each adds a half.
const counting, counted = "count 4000", "counted 2000"

// installCUDA builds the library, the fake driver and a program of test/cuda for the nodes.
func (b *bed) installCUDA(t *testing.T) {
	t.Helper()
	bin := filepath.Join(b.PFS(), "bin")
	made := t.TempDir()
	if err := launch.Build(made); err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{
		{"cp", filepath.Join(made, "libholdfast-cuda.so"), bin},
		{"cc", "-std=gnu11", "-O1", "-pthread", "-I../../lib/cuda/src", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1",
			"../cuda/testdata/fake.c", "-o", bin + "/libcuda.so.1"},
		{"cc", "-std=gnu11", "-O1", "-pthread", "-I../../lib/cuda/src", "../cuda/testdata/program.c",
			bin + "/libcuda.so.1", "-o", bin + "/linked"},
	} {
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", line, err, out)
		}
	}
}

// TestSuspend: the ranks of two nodes give up their GPUs when Slurm suspends the job, and when holdfast pause asks for
// it from a third place, and compute the same.
func TestSuspend(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("libholdfast-cuda has stubs for x86-64 alone")
	}
	t.Parallel()
	b := newBed(t, 2)
	b.installCUDA(t)
	there, here := b.dir(t, "suspend")
	const rank = "#!/bin/sh\nFAKE_USAGE=%s/usage.$SLURM_PROCID LD_LIBRARY_PATH=%s exec %[2]s/linked %s\n"
	if err := os.WriteFile(here+"/rank.sh", fmt.Appendf(nil, rank, there, b.bin, counting), 0o755); err != nil {
		t.Fatal(err)
	}
	j := &job{bed: b, there: there, here: here}
	j.sbatch(t, "#!/bin/bash\nexec "+b.bin+"/holdfast run --cuda --messages=false -- srun --mpi=pmix -N2 -n2 "+
		there+"/rank.sh\n", []string{"-N2", "-n2", "-t", "10"}, []string{"HOLDFAST_GLOBAL=" + there}, nil)
	used := func(want bool) func() bool {
		return func() bool {
			for n := range 2 {
				b, err := os.ReadFile(fmt.Sprint(here, "/usage.", n))
				if err != nil || len(b) < 8 || (binary.LittleEndian.Uint64(b) >= 2<<20) != want ||
					!want && binary.LittleEndian.Uint64(b) != 0 {
					return false
				}
			}
			return true
		}
	}
	poll(t, "both ranks use their GPUs", nil, j.log, used(true))
	holdfast := func(want string, args ...string) {
		t.Helper()
		out, err := b.Try(t, append([]string{b.bin + "/holdfast"}, args...)...)
		if err != nil || !regexp.MustCompile(want).MatchString(out) {
			t.Fatalf("%v: %v, got\n%s\nwant %s\n%s", args, err, out, want, j.log())
		}
	}
	holdfast(`rank 0 on n\d, process \d+ \(linked\) is paused: (.*\n)rank 1 on n\d, process`, "pause", there)
	if !used(false)() {
		t.Error("a GPU is in use after holdfast pause")
	}
	holdfast(`1 +n\d +\d+ +linked +CUDA +paused .* in host memory`, "status", there)
	holdfast(`rank 1 on n\d, process \d+ \(linked\) is running: `, "resume", there)

	b.Run(t, "scontrol", "suspend", j.id)
	poll(t, "both GPUs are free", nil, j.log, used(false))
	if out := b.Run(t, "scontrol", "show", "job", j.id); !strings.Contains(out, "JobState=SUSPENDED") {
		t.Errorf("the job is not suspended:\n%s", out)
	}
	b.Run(t, "scontrol", "resume", j.id)
	j.says(t, "the program has ended", 1)
	j.held(t, "the job is suspended: 2 ranks on 2 nodes are paused", "the job goes on: 2 ranks on 2 nodes are running")
	if n := strings.Count(j.log(), counted+"\n"); n != 2 {
		t.Errorf("%d ranks have counted right:\n%s", n, j.log())
	}
}
