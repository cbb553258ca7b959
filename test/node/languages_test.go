package node

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// must runs a command that has to succeed.
func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// cxx compiles a program in C++.
func cxx(t *testing.T, compiler, source string) string {
	t.Helper()
	return made(t, source, compiler, "-std=c++17", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion",
		"-Wno-sign-conversion", "-Werror", "-DOMPI_SKIP_MPICXX", "-I../../lib", source,
		filepath.Join(built.lib, "libholdfast.a"))
}

// fortran compiles a program in Fortran, with the module, and with that for MPI if the compiler
// is one of an MPI.
func fortran(t *testing.T, compiler, source string) string {
	t.Helper()
	modules := filepath.Join(built.dir, "modules-"+compiler)
	if err := os.MkdirAll(modules, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{compiler, "-std=f2018", "-O2", "-fcheck=bounds", "-Wall", "-Wextra", "-Werror", "-J", modules,
		"../../lib/holdfast.F90"}
	if compiler != "gfortran" {
		args = append(args, "../../lib/holdfast_mpi.F90")
	}
	// Arguments that an interface demands, and comparisons by bits.
	return made(t, source, append(args, "-Wno-unused-dummy-argument", "-Wno-compare-reals", source,
		filepath.Join(built.lib, "libholdfast.a"))...)
}

// python returns an interpreter that has NumPy and mpi4py.
func python(t *testing.T) string {
	t.Helper()
	for _, p := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(p, "-c", "import numpy, mpi4py").Run() == nil {
			return p
		}
	}
	t.Skip("no Python with NumPy and mpi4py is installed (make setup installs it)")
	return ""
}

func pythonEnviron(env []string, more ...string) []string {
	path := strings.Join(append(more, absolute("../../python")), ":")
	return append(env, "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1",
		"HOLDFAST_LIBRARY="+filepath.Join(built.lib, "libholdfast.so.0"))
}

func absolute(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		panic(err) // there is no working directory
	}
	return abs
}

// program is one of the examples under both MPIs.
type program struct {
	command func(l mpirun.Launcher) []string
	env     func(l mpirun.Launcher, env []string) []string // nil: none of its own
	args    []string                                       // before the file
	begins  string                                         // what rank 0 says at a first start
	again   int                                            // ranks of the restart; 0: as many as before
}

// restartsUnder runs four ranks of a program under one MPI, sends USR1 to one of them, kills all
// when the checkpoint is durable, and restarts them under the other. The result must be want.
func restartsUnder(t *testing.T, p program, first, second mpirun.Launcher, want []byte) {
	t.Helper()
	for _, l := range []mpirun.Launcher{first, second} {
		if err := l.Available(); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	got := filepath.Join(dir, "got")
	start := func(l mpirun.Launcher, ranks int, more ...string) *job {
		command := append(append(p.command(l), p.args...), append([]string{got}, more...)...)
		env := environ(t, filepath.Join(dir, "ckpt"))
		if p.env != nil {
			env = p.env(l, env)
		}
		return launchUnder(t, l, ranks, env, command...)
	}
	j := start(first, 4, "500")
	j.await(p.begins)
	pids := ranksWith(t, got)
	if err := syscall.Kill(pids[len(pids)-1], syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	j.await("committed")
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // the launcher ends the others
	}
	j.wait()
	again := start(second, cmp.Or(p.again, 4))
	again.mustEnd()
	if strings.Contains(again.out.String(), p.begins) {
		t.Fatalf("the restart began at the beginning:\n%s", again.out)
	}
	if b, err := os.ReadFile(got); err != nil || !bytes.Equal(b, want) {
		t.Errorf("the restarted program computed something else (%v)", err)
	}
}

// ranksWith returns the ranks that have an argument: its launcher has it, too, but a launcher has
// more before the program.
func ranksWith(t *testing.T, arg string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		env, err := os.ReadFile(f)
		line, lineErr := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		rank := bytes.Contains(env, []byte("\x00PMI_RANK=")) || bytes.Contains(env, []byte("\x00OMPI_COMM_WORLD_RANK="))
		var pid int
		if err := errors.Join(err, lineErr); err != nil || !rank || !bytes.Contains(line, []byte("\x00"+arg+"\x00")) {
			continue // it has ended, or is none
		}
		if _, err := fmt.Sscanf(f, "/proc/%d/environ", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	if len(pids) != 4 {
		t.Fatalf("%d processes are ranks with the argument %s, want 4", len(pids), arg)
	}
	return pids
}

// heatInC returns the result of the solver in C, on one rank: that of the others, whatever their
// language, is the same by bytes.
func heatInC(t *testing.T) []byte {
	t.Helper()
	if inC != nil {
		return inC
	}
	heat := compile(t, mpirun.MPICH.Compiler(), "../../examples/heat-c/heat.c", "-Wno-unused-function",
		filepath.Join(built.lib, "libholdfast.a"))
	name := filepath.Join(t.TempDir(), "want")
	launchOne(t, environ(t, t.TempDir()), []string{heat, "48", "80", name}).mustEnd()
	var err error
	if inC, err = os.ReadFile(name); err != nil {
		t.Fatal(err)
	}
	return inC
}

var inC []byte // computed once

// TestFortran restarts the solver in Fortran under another MPI, with another number of ranks.
func TestFortran(t *testing.T) {
	p := program{args: []string{"48", "80"}, begins: "heat: begins at step 0", again: 3}
	built := map[string]string{}
	for _, l := range mpirun.Launchers() {
		built[l.Name] = fortran(t, "mpifort."+l.Name, "../../examples/heat-fortran/heat.f90")
	}
	p.command = func(l mpirun.Launcher) []string { return []string{built[l.Name]} }
	restartsUnder(t, p, mpirun.OpenMPI, mpirun.MPICH, heatInC(t))
}

// TestPython restarts the solver in Python under another MPI, with another number of ranks.
func TestPython(t *testing.T) {
	interpreter := python(t)
	p := program{args: []string{"48", "80"}, begins: "heat: begins at step 0", again: 2}
	p.command = func(mpirun.Launcher) []string {
		return []string{interpreter, absolute("../../examples/heat-python/heat.py")}
	}
	p.env = func(l mpirun.Launcher, env []string) []string {
		if l.Name == mpirun.MPICH.Name {
			return pythonEnviron(env, absolute("testdata/mpich"))
		}
		return pythonEnviron(env)
	}
	restartsUnder(t, p, mpirun.MPICH, mpirun.OpenMPI, heatInC(t))
}

// TestCxx restarts the walkers in C++ under another MPI.
func TestCxx(t *testing.T) {
	p := program{args: []string{"500", "60"}, begins: "walk: begins at step 0"}
	built := map[string]string{}
	for _, l := range mpirun.Launchers() {
		built[l.Name] = cxx(t, "mpicxx."+l.Name, "../../examples/walk-cxx/walk.cpp")
	}
	p.command = func(l mpirun.Launcher) []string { return []string{built[l.Name]} }
	name := filepath.Join(t.TempDir(), "want")
	uncut := append(append(p.command(mpirun.MPICH), p.args...), name)
	launchOne(t, environ(t, t.TempDir()),
		mpirun.MPICH.Command(nil, mpirun.Part{Ranks: 4, Command: uncut})).mustEnd()
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	restartsUnder(t, p, mpirun.OpenMPI, mpirun.MPICH, want)
}

// TestHelloCxx kills a program without MPI and starts it again.
func TestHelloCxx(t *testing.T) {
	hello := cxx(t, "g++", "../../examples/hello-cxx/hello.cpp")
	env := environ(t, t.TempDir())
	j := launchOne(t, env, []string{hello, "6000"})
	j.await("begins at step 0")
	for range 2 { // the first may be at step 0
		if err := j.ranks[0].Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		j.await("committed")
	}
	j.kill()
	j.wait()
	again := launchOne(t, env, []string{hello, "20"})
	again.mustEnd()
	if s := again.out.String(); strings.Contains(s, "begins at step 0") || !strings.Contains(s, "ends at step") {
		t.Errorf("the restart did not continue:\n%s", s)
	}
}

// TestBatchScript: a batch script of Slurm is task 0 of a job of several tasks. What it starts without srun is one
// process, and the tasks of a step are its ranks.
func TestBatchScript(t *testing.T) {
	hello := cxx(t, "g++", "../../examples/hello-cxx/hello.cpp")
	env := append(environ(t, t.TempDir()), "SLURM_PROCID=0", "SLURM_NTASKS=4")
	launchOne(t, env, []string{hello, "2"}).mustEnd()
	env = append(environ(t, t.TempDir()), "HOLDFAST_NODE_KEY="+t.Name(), "SLURM_NTASKS=4", "SLURM_STEP_NUM_TASKS=2")
	one := launchOne(t, append(env[:len(env):len(env)], "SLURM_PROCID=1"), []string{hello, "2"})
	launchOne(t, append(env, "SLURM_PROCID=0"), []string{hello, "2"}).mustEnd()
	one.mustEnd()
}

// TestKinds saves and restores what each language can protect, and sees its errors.
func TestKinds(t *testing.T) {
	for _, tc := range []struct {
		name    string
		command func(t *testing.T) []string
	}{
		{"C++", func(t *testing.T) []string { return []string{cxx(t, "g++", "testdata/kinds.cpp")} }},
		{"Fortran", func(t *testing.T) []string { return []string{fortran(t, "gfortran", "testdata/kinds.f90")} }},
		{"Python", func(t *testing.T) []string { return []string{python(t), "testdata/kinds.py"} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			command, env := tc.command(t), pythonEnviron(environ(t, t.TempDir()))
			for _, words := range []string{"kinds: saved", "kinds: the same"} {
				j := launchOne(t, env, command)
				j.mustEnd()
				if !strings.Contains(j.out.String(), words) {
					t.Fatalf("no %q:\n%s", words, j.out)
				}
			}
		})
	}
}

// TestWrongLauncher starts programs by the mpirun of another MPI, where every rank is alone: they are refused by name.
// Otherwise each would continue from the checkpoints of the one before.
func TestWrongLauncher(t *testing.T) {
	for _, p := range languages(t) {
		t.Run(p.name, func(t *testing.T) {
			right := p.l
			p.l = mpirun.MPICH
			if right.Name == p.l.Name {
				p.l = mpirun.OpenMPI
			}
			dir := t.TempDir()
			j := p.start(t, environ(t, dir), filepath.Join(t.TempDir(), "got"), "0")
			j.wait()
			if s := j.out.String(); !strings.Contains(s, "launcher and MPI library do not match: ") ||
				strings.Contains(s, "first start") {
				t.Errorf("it took part in checkpoints:\n%s", s)
			}
		})
	}
}
