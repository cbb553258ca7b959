package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// checkpointed runs a program with checkpoints at both levels and ends it with a
// stop, so that epochs are there to be damaged.
func checkpointed(t *testing.T, mpi, ranks int, args []string) dirs {
	t.Helper()
	d := newDirs(t)
	j := &job{mpi: mpi, ranks: ranks, args: append(args, "-result", d.result, "-hold", d.result+".go"), env: d.env()}
	j.start(t)
	j.ready(t)
	j.signal(0, syscall.SIGUSR1)
	j.until(t, func() bool { return len(j.committed("global")) == 1 })
	j.signal(0, syscall.SIGUSR2)
	j.wait()
	if n := len(j.committed("global")); n != 2 {
		t.Fatalf("%d epochs committed, want 2:\n%s", n, j.output())
	}
	return d
}

var inputArgs = []string{"-shape", "stencil", "-steps", "500", "-pace", "1ms", "-size", "20000"}

// TestBadInput: every misuse ends with an error that says what to do, and
// leaves the checkpoints as they were.
func TestBadInput(t *testing.T) {
	forEachMPI(t, func(t *testing.T, mpi int) {
		want := uncutResult(t, mpi, 2, inputArgs)
		d := checkpointed(t, mpi, 2, inputArgs)
		for _, c := range []struct {
			name  string
			ranks int
			env   []string
			want  []string
		}{
			{"another job", 2, d.env("HOLDFAST_JOB=other"), []string{"other", "e2e"}},
			{"another number of ranks", 3, d.env(), []string{"2", "3"}},
			{"missing directory", 2, []string{"HOLDFAST_LOCAL=" + d.local + "/nosuch"}, []string{"nosuch"}},
			{"no directory", 2, []string{"HOLDFAST_LOCAL=", "HOLDFAST_GLOBAL="}, []string{"HOLDFAST_LOCAL"}},
			{"unknown signal", 2, d.env("HOLDFAST_SIGNALS_STOP=USR7"), []string{"USR7"}},
			{"epoch that is not there", 2, d.env("HOLDFAST_EPOCH=77"), []string{"77"}},
		} {
			j := &job{mpi: mpi, ranks: c.ranks, args: inputArgs, env: c.env}
			j.start(t)
			if code := j.wait(); code == 0 {
				t.Errorf("%s: accepted\n%s", c.name, j.output())
			}
			for _, w := range c.want {
				if !strings.Contains(j.output(), w) {
					t.Errorf("%s: the error lacks %q:\n%s", c.name, w, j.output())
				}
			}
		}
		finish(t, mpi, 2, d, want)
	})
}

// finish restarts and compares.
func finish(t *testing.T, mpi, ranks int, d dirs, want string) *job {
	t.Helper()
	_ = os.Remove(d.result) // may not be there
	j := &job{mpi: mpi, ranks: ranks, args: append(inputArgs, "-pace", "0", "-result", d.result), env: d.env()}
	j.start(t)
	if code := j.wait(); code != 0 {
		t.Fatalf("restart: exit %d\n%s", code, j.output())
	}
	if got := d.read(t); got != want {
		t.Fatalf("got %s, the uninterrupted run %s\n%s", got, want, j.output())
	}
	return j
}

// shards finds the files with shards at a level, one for a rank or packed for a
// node, newest epoch last.
func shards(t *testing.T, dir string) []string {
	t.Helper()
	single, _ := filepath.Glob(filepath.Join(dir, "epoch-*", "rank-*.shard")) // the pattern is good
	packed, _ := filepath.Glob(filepath.Join(dir, "epoch-*", "pack-*.shards"))
	files := append(single, packed...)
	if len(files) == 0 {
		t.Fatalf("no shards in %s", dir)
	}
	return files
}

// TestDamage: a flipped byte or a missing shard of the newest epoch at one level
// is made good from the other; at both levels, the epoch before is restored.
func TestDamage(t *testing.T) {
	forEachMPI(t, func(t *testing.T, mpi int) {
		want := uncutResult(t, mpi, 2, inputArgs)
		good := checkpointed(t, mpi, 2, inputArgs)
		flip := func(t *testing.T, file string) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/3] ^= 1 // in a pack of two shards, one byte of each
			b[2*len(b)/3] ^= 1
			if err := os.WriteFile(file, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		remove := func(t *testing.T, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			name   string
			damage func(*testing.T, string)
			both   bool
		}{{"flipped byte", flip, false}, {"missing shard", remove, false}, {"flipped byte at both levels", flip, true},
			{"missing at both levels", remove, true}} {
			d := newDirs(t)
			err := errors.Join(os.CopyFS(d.local, os.DirFS(good.local)), os.CopyFS(d.global, os.DirFS(good.global)))
			if err != nil {
				t.Fatal(err)
			}
			local := shards(t, d.local)
			c.damage(t, local[len(local)-1])
			if c.both {
				global := shards(t, d.global)
				c.damage(t, global[len(global)-1])
			}
			j := finish(t, mpi, 2, d, want)
			if older := strings.Contains(j.output(), "epoch=1 level="); older != c.both {
				t.Errorf("%s: restored from the older epoch: %t, want %t\n%s", c.name, older, c.both, j.output())
			}
		}
	})
}
