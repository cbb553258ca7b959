package mpilayer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// TestWorldUnderOtherMPI: non-blocking and neighbourhood collectives, operations on files and windows, messages and
// collectives of intercommunicators that are under way at the points of a program are complete after a restart under
// the other MPI. The program checks its file and its window; its sums are those of a run without a cut.
func TestWorldUnderOtherMPI(t *testing.T) {
	const ranks, steps, cut = 3, "2000", "100"
	dir := installed(t)
	program := compile(t, dir, "testdata/world.c")
	both := mpirun.Launchers()
	out, err := start(t, both[0], dir, t.TempDir(), ranks, program[both[0].Name], steps, t.TempDir())
	want := sums(out)
	if err != nil || len(want) != ranks {
		t.Fatalf("without a cut: %v\n%s", err, out)
	}
	for i, l := range both {
		t.Run(l.Name, func(t *testing.T) {
			checkpoints, files := t.TempDir(), t.TempDir()
			out, err := start(t, l, dir, checkpoints, ranks, program[l.Name], steps, files, cut)
			if err == nil || len(sums(out)) > 0 || !strings.Contains(out, "holdfast: committed") {
				t.Fatalf("the first start was not stopped: %v\n%s", err, out)
			}
			if s, err := os.Stat(filepath.Join(files, "file")); err != nil || s.Size() == 0 {
				t.Errorf("the file: %v, %v", s, err)
			}
			other := both[1-i]
			out, err = start(t, other, dir, checkpoints, ranks, program[other.Name], steps, files)
			if err != nil || strings.Contains(out, "begins at step 0\n") {
				t.Fatalf("the restart: %v\n%s", err, out)
			}
			if got := sums(out); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v\n%s", got, want, out)
			}
		})
	}
}

// TestRefusedByName: what a checkpoint cannot keep makes it fail by the name of the call, and the next one is taken
// when that is over.
func TestRefusedByName(t *testing.T) {
	const ranks = 2
	dir := installed(t)
	program := compile(t, dir, "testdata/refused.c", "-Wno-error=stringop-overflow") // MPI_STATUSES_IGNORE
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) {
			out, err := start(t, l, dir, t.TempDir(), ranks, program[l.Name], t.TempDir())
			if err != nil || strings.Count(out, ": right\n") != ranks {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestOtherRanks: hf_init refuses ranks that are not those of MPI_COMM_WORLD, whose messages the library counts, and
// names the remedy.
func TestOtherRanks(t *testing.T) {
	const ranks = 3
	dir := installed(t)
	program := compile(t, dir, "testdata/others.c")
	for _, l := range mpirun.Launchers() {
		for which, want := range map[string][]string{
			"few":   {"rank 0 of 2 is rank 0 of 3", "rank 1 of 2 is rank 1 of 3"},
			"moved": {"rank 0 of 3 is rank 2 of 3", "rank 1 of 3 is rank 0 of 3", "rank 2 of 3 is rank 1 of 3"},
		} {
			out, err := start(t, l, dir, t.TempDir(), ranks, program[l.Name], which)
			right := err == nil && strings.Count(out, "--messages=false") == len(want)
			for _, text := range want {
				right = right && strings.Contains(out, ": -1: hf_init: "+text+" in MPI_COMM_WORLD: ")
			}
			if !right {
				t.Errorf("%s, %s: want %q: %v\n%s", l.Name, which, want, err, out)
			}
		}
	}
}

// TestHiddenMPI: hf_init fails, and names the remedy, where the library is loaded and the program calls MPI past it.
func TestHiddenMPI(t *testing.T) {
	const ranks = 2
	dir := installed(t)
	program := compile(t, dir, "testdata/others.c")
	for _, l := range mpirun.Launchers() {
		out, err := start(t, l, dir, t.TempDir(), ranks, program[l.Name], "hidden")
		refused := strings.Count(out, "has not seen MPI_Init")
		if err != nil || refused != ranks || !strings.Contains(out, "--messages=false") {
			t.Errorf("%s: %v\n%s", l.Name, err, out)
		}
	}
}
