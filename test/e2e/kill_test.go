package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// rankDirs gives every rank a local directory of its own, as on nodes of its
// own; from maps a rank to the directory it uses.
func rankDirs(t *testing.T, ranks int, from func(rank int) int) func(rank int) string {
	t.Helper()
	base := t.TempDir()
	for r := range ranks {
		if err := os.MkdirAll(filepath.Join(base, fmt.Sprint(r)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return func(rank int) string { return filepath.Join(base, fmt.Sprint(from(rank))) }
}

// TestKillAndRestartElsewhere kills a rank with SIGKILL and restarts under the
// other MPI with other local directories, so that every rank finds its shard
// elsewhere: at the global level, or in the directory of another rank.
func TestKillAndRestartElsewhere(t *testing.T) {
	forEachMPI(t, func(t *testing.T, mpi int) {
		const ranks = 4
		args := []string{"-shape", "stencil", "-steps", "600", "-pace", "1ms"}
		want := uncutResult(t, mpi, ranks, args)
		d := newDirs(t)
		local := rankDirs(t, ranks, func(r int) int { return r })
		global := []string{"HOLDFAST_GLOBAL=" + d.global}
		j := &job{mpi: mpi, ranks: ranks, args: append(args, "-result", d.result, "-hold", d.result+".go"), env: global,
			local: local}
		j.start(t)
		j.ready(t)
		j.signal(2, syscall.SIGUSR1)
		if !j.until(t, func() bool { return len(j.committed("global")) > 0 }) {
			t.Fatalf("no checkpoint before the program ended:\n%s", j.output())
		}
		j.signal(1, syscall.SIGKILL)
		j.wait()
		other := (mpi + 1) % len(launchers)
		fresh := rankDirs(t, ranks, func(r int) int { return r })
		for _, c := range []struct {
			name  string
			local func(rank int) string
			level string // that some rank must have restored from
		}{
			{"new local directories", fresh, "level=global"},
			{"local directories in reversed order", func(r int) string { return local(ranks - 1 - r) }, "restored"},
		} {
			_ = os.Remove(d.result) // of the case before
			j = &job{mpi: other, ranks: ranks, args: append(args, "-pace", "0", "-result", d.result), env: global,
				local: c.local}
			j.start(t)
			if code := j.wait(); code != 0 {
				t.Fatalf("%s, restart under %s: exit %d\n%s", c.name, launchers[other].Name, code, j.output())
			}
			if got := d.read(t); got != want {
				t.Fatalf("%s: got %s, the uninterrupted run %s\n%s", c.name, got, want, j.output())
			}
			if !strings.Contains(j.output(), c.level) {
				t.Errorf("%s: no rank says %q:\n%s", c.name, c.level, j.output())
			}
			if strings.Contains(j.output(), "cannot repair all levels after the restart") {
				t.Errorf("%s: the epoch was not made whole in the new places:\n%s", c.name, j.output())
			}
		}
	})
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// TestStopAndGoOn ends a program with each stop signal, and lets a restart
// finish it.
func TestStopAndGoOn(t *testing.T) {
	forEachMPI(t, func(t *testing.T, mpi int) {
		for _, sig := range []syscall.Signal{syscall.SIGUSR2, syscall.SIGTERM} {
			const ranks = 2
			args := []string{"-shape", "apart", "-steps", "600", "-pace", "1ms"}
			want := uncutResult(t, mpi, ranks, args)
			d := newDirs(t)
			j := &job{mpi: mpi, ranks: ranks, args: append(args, "-result", d.result, "-hold", d.result+".go"),
				env: d.env()}
			j.start(t)
			j.ready(t)
			j.signal(1, sig)
			if code := j.wait(); code == 0 || fileExists(d.result) {
				t.Fatalf("%v: the program did not stop: exit %d\n%s", sig, code, j.output())
			}
			if len(j.committed("global")) != 1 {
				t.Fatalf("%v: stopped without one committed epoch:\n%s", sig, j.output())
			}
			j = &job{mpi: mpi, ranks: ranks, args: append(args, "-result", d.result), env: d.env()}
			j.start(t)
			if code := j.wait(); code != 0 {
				t.Fatalf("%v: restart: exit %d\n%s", sig, code, j.output())
			}
			if got := d.read(t); got != want {
				t.Fatalf("%v: got %s, the uninterrupted run %s\n%s", sig, got, want, j.output())
			}
		}
	})
}

// diagnosis is the whole line: it may come in pieces.
var diagnosis = regexp.MustCompile(`.*given up.*\n`)

// TestCulpritNamed: a rank that never reaches a Point is named with the call it
// is in and the line of the program.
func TestCulpritNamed(t *testing.T) {
	forEachMPI(t, func(t *testing.T, mpi int) {
		const ranks = 3
		d := newDirs(t)
		j := &job{mpi: mpi, ranks: ranks, args: []string{"-shape", "stuck", "-pace", "100us"},
			env: d.env("HOLDFAST_CUT_TIMEOUT=3s")}
		j.start(t)
		j.ready(t)
		j.signal(0, syscall.SIGUSR1)
		j.until(t, func() bool { return diagnosis.MatchString(j.output()) })
		said := diagnosis.FindString(j.output())
		for _, want := range []string{"rank 2", "Recv", "from rank 0", "tag 1234", "for at least", "shapes.go:"} {
			if !strings.Contains(said, want) {
				t.Errorf("the diagnosis lacks %q:\n%s", want, j.output())
			}
		}
	})
}
