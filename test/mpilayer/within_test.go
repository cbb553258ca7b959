package mpilayer

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// withinSums returns what within.c computes.
func withinSums(ranks, steps int) (lines []string) {
	for r := range ranks {
		sum := uint64(0)
		for step := range steps {
			for _, tag := range []int{0, 1, 2, 3, 6, 4, 5, 7, 10, 8, 9, 11} { // in the order of the calls
				sum = sum*31 + uint64((r+ranks-1)%ranks*10000+step*100+tag)
			}
		}
		lines = append(lines, fmt.Sprintf("rank %d sum %d", r, sum))
	}
	return lines
}

// TestCallsWithinCalls: what a program sends and receives, and the communicators that it makes, in functions that MPI
// calls are counted and kept as others are.
func TestCallsWithinCalls(t *testing.T) {
	const ranks, steps = 3, 10
	dir, want := installed(t), withinSums(ranks, steps)
	layer := filepath.Join(dir, "libholdfast-mpi.so")
	program := compile(t, dir, "testdata/within.c")
	osc := []string{"OMPI_MCA_osc=^rdma"} // it crashes at times
	for i, l := range mpirun.Launchers() {
		out, err := killedAndRestarted(t, dir, layer, i, program, osc, ranks, fmt.Sprint(steps))
		first := strings.Count(out, "begins at step 0\n")
		if got := sums(out); err != nil || !slices.Equal(got, want) || first != ranks {
			t.Errorf("restarted from %s: %v, want %v\n%s", l.Name, err, want, out)
		}
		for _, cut := range []string{"1", "r3 threads"} {
			if cut != "1" && l.Name == mpirun.MPICH.Name { // its lock is held where it calls functions
				continue
			}
			how, threads, _ := strings.Cut(cut, " ")
			line := []string{"env", preload(layer), osc[0], "HOLDFAST_MPI_CUT=" + how, program[l.Name],
				fmt.Sprint(steps)}
			out, err := start(t, l, dir, "off", ranks, append(line, strings.Fields(threads)...)...)
			if got := sums(out); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s, drained %s: %v, want %v\n%s", l.Name, cut, err, want, out)
			}
		}
	}
}

// TestLeftCall: a checkpoint names a call that the program has left by longjmp, and also fails if a function that MPI
// has called asks for it. The program goes on.
func TestLeftCall(t *testing.T) {
	dir := installed(t)
	program := compile(t, dir, "testdata/left.c")
	const left = "the program has left "
	const unsure = left + "a call of MPI by longjmp or an exception, or the point is in a function that such a call has"
	for _, l := range mpirun.Launchers() {
		for how, want := range map[string]string{"receive": left + "MPI_Recv by longjmp or an exception\n",
			"send": left, "point": unsure, "within": unsure} {
			out, err := start(t, l, dir, t.TempDir(), 2, program[l.Name], how)
			if err != nil || !strings.Contains(out, "rank 0: -7: drain messages: ") || !strings.Contains(out, want) ||
				!strings.Contains(out, "rank 0 right\n") || !strings.Contains(out, "rank 1 right\n") {
				t.Errorf("%s, %s: %v, want %q in\n%s", l.Name, how, err, want, out)
			}
		}
	}
}
