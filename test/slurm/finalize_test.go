package slurm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/test/cluster"
)

// short is a program of no length.
var short = []string{"-shape", "stencil", "-steps", "20"}

// left is the line of a rank that has waited for MPI_Finalize long enough.
const left = "MPI_Finalize hangs although all ranks have called it"

// TestFinalize: without holdfast run, a program ends by itself and with its own
// code, under an MPICH that hangs in MPI_Finalize when it is left to itself, and
// under libraries that hang forever.
func TestFinalize(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	there, here := b.dir(t, "finalize")
	want := b.want(t, 0, 4, short)
	env := []string{patient, "HOLDFAST_GLOBAL=" + there, "HOLDFAST_FRESH=1"}
	two := []string{"-N2", "--ntasks-per-node=2"}
	hung := append(two[:2:2], "--export=ALL,"+strings.Join(mpis[0].env, ",")+",LD_PRELOAD="+cluster.Shared+
		"/bin/hang.so")
	b.preload(t, "hang", "int pause(void); static void hang(void) { for (;;) pause(); }\n"+
		"void ucp_worker_destroy(void *w) { (void)w; hang(); }\nint ompi_mpi_finalize(void) { hang(); return 0; }\n")
	limit := []string{"-finalize", "500ms"}
	program := func(result string, more ...string) []string {
		return append(append(append([]string{}, short...), "-result", result), more...)
	}
	mpiexec := func(result string) []string {
		return []string{"bash", "-c", "exec mpiexec.mpich -launcher ssh -launcher-exec $TESTBED_RSH -f " +
			"$TESTBED_MPICH_HOSTS -ppn 2 -n 4 " +
			strings.Join(b.line(short, result), " ")}
	}
	for _, c := range []struct {
		name  string
		line  []string
		hangs bool
		code  int
	}{
		{"srun", b.srunLine(1, 4, two, program(there+"/srun")...), false, 0},
		{"mpiexec", mpiexec(there + "/mpiexec"), false, 0},
		{"mpich", b.srunLine(1, 4, hung, program(there+"/mpich", limit...)...), true, 0},
		{"openmpi", b.srunLine(0, 4, hung, program(there+"/openmpi", limit...)...), true, 0},
		{"failed", b.srunLine(0, 4, hung, program("/dev/null/result", limit...)...), true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := b.start(t, env, c.line...)
			if code := k.wait(); code != c.code || strings.Contains(k.output(), left) != c.hangs {
				t.Fatalf("exit %d, want %d, and the library hangs: %t\n%s", code, c.code, c.hangs, k.output())
			}
			if c.code != 0 {
				return
			}
			if got := read(t, here+"/"+c.name, k.output()); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// preload builds a library beside the programs that ranks can be made to load
// first.
func (b *bed) preload(t *testing.T, name, source string) {
	t.Helper()
	file := filepath.Join(b.PFS(), "bin", name+".so")
	cc := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-x", "c", "-o", file, "-")
	cc.Stdin, cc.Stderr = strings.NewReader(source), os.Stderr
	if err := cc.Run(); err != nil {
		t.Fatal(err)
	}
}
