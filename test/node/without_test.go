package node

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

const withoutLine = "holdfast: running without checkpoints: "

// off returns an environment without checkpoints, and without a command that could start a daemon.
func off(env []string, more ...string) []string {
	return append(slices.Clone(env), append([]string{"HOLDFAST_GLOBAL=off", "HOLDFAST_BIN=/nowhere"}, more...)...)
}

// inLanguage is a program of the examples, which runs in 2 ranks.
type inLanguage struct {
	name    string
	l       mpirun.Launcher
	command []string // a file for the result follows, and the least milliseconds of a step
}

// languages are programs in all of them; those in C, Fortran and Python compute the same.
func languages(t *testing.T) []inLanguage {
	t.Helper()
	with := func(command ...string) []string { return append(command, "48", "80") }
	return []inLanguage{
		{"C", mpirun.MPICH, with(compile(t, mpirun.MPICH.Compiler(), "../../examples/heat-c/heat.c",
			"-Wno-unused-function", filepath.Join(built.lib, "libholdfast.a")))},
		{"Fortran", mpirun.OpenMPI, with(fortran(t, "mpifort.openmpi", "../../examples/heat-fortran/heat.f90"))},
		{"Python", mpirun.OpenMPI, with(python(t), absolute("../../examples/heat-python/heat.py"))},
		{"CXX", mpirun.MPICH, with(cxx(t, "mpicxx.mpich", "../../examples/walk-cxx/walk.cpp"))},
	}
}

// start starts the program, which writes to a file.
func (p *inLanguage) start(t *testing.T, env []string, name, pace string) *job {
	t.Helper()
	if err := p.l.Available(); err != nil {
		t.Skip(err)
	}
	return launchUnder(t, p.l, 2, pythonEnviron(slices.Clone(env)), append(slices.Clone(p.command), name, pace)...)
}

// run lets it run to its end, and returns its result and what it has said.
func (p *inLanguage) run(t *testing.T, env []string) (result []byte, said string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "got")
	j := p.start(t, env, name, "0")
	j.mustEnd()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b, j.out.String()
}

// TestWithoutCheckpoints: programs in all languages compute the same without checkpoints and without a daemon, and say
// once that there are none.
func TestWithoutCheckpoints(t *testing.T) {
	heat := heatInC(t)
	for _, p := range languages(t) {
		t.Run(p.name, func(t *testing.T) {
			env, want := environ(t, t.TempDir()), heat
			if p.name == "CXX" { // another program
				want, _ = p.run(t, env)
			}
			got, said := p.run(t, off(env))
			if !bytes.Equal(got, want) {
				t.Error("the program computed something else")
			}
			if strings.Count(said, withoutLine+"HOLDFAST_GLOBAL=off\n") != 1 {
				t.Errorf("there is not one line about it:\n%s", said)
			}
		})
	}
}

// TestDaemonKilledInEachLanguage: a program in any language goes on when its daemon dies, with checkpoints of the next
// one, and what continues from there computes the same.
func TestDaemonKilledInEachLanguage(t *testing.T) {
	for _, p := range languages(t) {
		t.Run(p.name, func(t *testing.T) {
			dir := t.TempDir()
			env := append(environ(t, dir), "HOLDFAST_INTERVAL=200ms")
			want, _ := p.run(t, off(env))
			j := p.start(t, env, filepath.Join(t.TempDir(), "unfinished"), "500")
			j.await("level=global")
			l := life{job: j, key: keyOf(env)}
			daemon := l.daemon(0)
			if daemon == 0 {
				t.Fatalf("there is no daemon:\n%s", j.out)
			}
			l.slay(daemon)
			j.await("takes its place")
			j.await("level=global")
			if out, err := exec.Command(built.holdfast, "request", "--stop", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			j.wait() // with the code that says so, or as the launcher makes of it
			got, said := p.run(t, env)
			if !strings.Contains(said, "holdfast: restored") || !bytes.Equal(got, want) {
				t.Errorf("the program began anew, or computed something else:\n%s", said)
			}
		})
	}
}

// TestWithoutAnswers: what the calls answer, whatever has switched checkpoints off.
func TestWithoutAnswers(t *testing.T) {
	c := compile(t, "gcc", "testdata/without.c")
	file := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(file, []byte("local: off\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	env := environ(t, t.TempDir())
	for by, env := range map[string][]string{
		"HOLDFAST_GLOBAL=off":                     off(env),
		"HOLDFAST_LOCAL=off, HOLDFAST_GLOBAL=off": off(env, "HOLDFAST_LOCAL=off", "HOLDFAST_CONFIG="+file),
		file: append(slices.Clone(env), "HOLDFAST_GLOBAL=", "HOLDFAST_CONFIG="+file), // the command reads it
	} {
		j := launchRanks(t, 2, c, env)
		j.mustEnd()
		if said := j.out.String(); strings.Count(said, "without: as it should\n") != 2 ||
			strings.Count(said, withoutLine+by+"\n") != 1 || strings.Count(said, "\n") != 3 {
			t.Errorf("by %s:\n%s", by, said)
		}
	}
}

// TestWithoutOnSomeRanks: ranks with other settings than the rest say so, and no rank waits for another.
func TestWithoutOnSomeRanks(t *testing.T) {
	if err := mpirun.MPICH.Available(); err != nil {
		t.Skip(err)
	}
	heat := compile(t, mpirun.MPICH.Compiler(), "../../examples/heat-c/heat.c", "-Wno-unused-function",
		filepath.Join(built.lib, "libholdfast.a"))
	script := `[ $PMI_RANK = 0 ] || export HOLDFAST_GLOBAL=off; exec "$0" "$@"`
	j := launchOne(t, environ(t, t.TempDir()), mpirun.MPICH.Command(nil, mpirun.Part{Ranks: 2,
		Command: []string{"sh", "-c", script, heat, "48", "80", filepath.Join(t.TempDir(), "got")}}))
	if codes := j.wait(); codes[0] == 0 || !strings.Contains(j.out.String(), "rank 1 runs without checkpoints") {
		t.Errorf("exit code %v:\n%s", codes, j.out)
	}
}

// TestToolWithout: what the commands say where programs run without checkpoints.
func TestToolWithout(t *testing.T) {
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"run -- sh -c echo~started;exit~7": {7, "holdfast run: the program runs without checkpoints: " +
			"HOLDFAST_GLOBAL=off; it is started once, and not again when it dies\nstarted\n"},
		"run -- /nowhere": {2, "start /nowhere: "},
		"request":         {2, "there are no checkpoints to look at, since programs run without them here"},
		"status":          {2, "there are no checkpoints to look at, since programs run without them here"},
		"node":            {3, "needs no daemon: HOLDFAST_GLOBAL=off"},
	} {
		args := strings.Fields(line)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "~", " ")
		}
		c := exec.Command(built.holdfast, args...)
		c.Env = mpirun.Environ("HOLDFAST_GLOBAL=off")
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) || c.ProcessState.ExitCode() != want.code ||
			!strings.Contains(string(out), want.text) {
			t.Errorf("%s: %v, want code %d and %q:\n%s", line, err, want.code, want.text, out)
		}
	}
}
