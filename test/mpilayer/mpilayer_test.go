package mpilayer

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/test/yield"
)

// TestDrainAtEveryCall drains before each call of programs, and before one in three at random: they go on from the
// mailbox and see no difference.
func TestDrainAtEveryCall(t *testing.T) {
	layer := filepath.Join(installed(t), "libholdfast-mpi.so")
	for _, l := range mpirun.Launchers() {
		for _, program := range []struct{ name, args string }{
			{"inflight", "3"}, {"churn", "100"}, {"corners", "1"}, {"corners", "1 threads"}} {
			file := plain(t, l, "testdata/"+program.name+".c", "-Wno-error=stringop-overflow")
			for _, cut := range []string{"", "1", "r3"} {
				t.Run(l.Name+" "+program.name+" "+program.args+" cut "+cut, func(t *testing.T) {
					line := []string{"env", preload(layer), "HOLDFAST_MPI_CUT=" + cut, "MALLOC_PERTURB_=85", file}
					j := l.Job(3, 5*time.Minute, append(line, strings.Fields(program.args)...)...)
					j.Env = yield.Env()
					out, err := j.CombinedOutput(t.Context())
					if err != nil || !strings.Contains(out, "failed checks: 0\n") {
						t.Errorf("%v\n%s", err, out)
					}
				})
			}
		}
	}
}

// preload returns the variable that puts the layer before a rank's MPI, and between them what has it yield.
func preload(layer string) string {
	for _, variable := range yield.Env() {
		if file, ok := strings.CutPrefix(variable, "LD_PRELOAD="); ok {
			return "LD_PRELOAD=" + layer + ":" + file
		}
	}
	return "LD_PRELOAD=" + layer
}

// TestEveryFunctionHasAClass compares api.txt with what the installed libraries export: a function that is in neither
// part of it would pass the layer unseen.
func TestEveryFunctionHasAClass(t *testing.T) {
	text, err := os.ReadFile("../../lib/mpi/api.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows, passed, _ := strings.Cut(string(text), "\npassed\n")
	known := strings.Fields(passed)
	for _, m := range regexp.MustCompile(`(?m)^[a-z:_-]+ +\S+ MPI_(\w+)\(`).FindAllStringSubmatch(rows, -1) {
		known = append(known, m[1])
	}
	slices.Sort(known)
	libraries := 0
	for _, pattern := range []string{"libmpi.so.40", "libmpich.so.12"} {
		files, _ := filepath.Glob("/usr/lib/*/" + pattern)
		for _, file := range files {
			libraries++
			for _, name := range exported(t, file) {
				if _, ok := slices.BinarySearch(known, name); !ok {
					t.Errorf("%s exports MPI_%s, which api.txt does not have", file, name)
				}
			}
		}
	}
	if libraries == 0 {
		t.Skip("no MPI library is installed (make setup)")
	}
}

// exported lists the names of a library behind MPI_ and PMPI_.
func exported(t *testing.T, file string) (names []string) {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if name, ok := strings.CutPrefix(strings.TrimPrefix(s.Name, "P"), "MPI_"); ok && s.Section != elf.SHN_UNDEF {
			names = append(names, name)
		}
	}
	if len(names) < 400 {
		t.Errorf("%s: only %d names: %v", file, len(names), fmt.Sprint(names))
	}
	return names
}
