package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOtherCounts continues a program on other numbers of ranks, in turn with all arrays on the host and with some on a
// device of the driver for tests, and has the tool assemble an array.
func TestOtherCounts(t *testing.T) {
	global := compile(t, "gcc", "testdata/global.c", "-L"+built.lib, "-lholdfast", "-Wl,-rpath,"+built.lib, "-ldl")
	dir := t.TempDir()
	env := append(environ(t, filepath.Join(dir, "ckpt")), "HOLDFAST_LOCAL="+filepath.Join(dir, "local"))
	if err := os.Mkdir(filepath.Join(dir, "local"), 0o755); err != nil {
		t.Fatal(err)
	}
	must(t, "gcc", "-shared", "-fPIC", "testdata/fakegpu.c", "-o", filepath.Join(dir, "libcuda.so.1"))
	at := 0
	for i, n := range []int{3, 1, 2, 3, 2} {
		env := env
		if i%2 == 1 {
			env = append(slices.Clone(env), "DEVICE=1", "LD_LIBRARY_PATH="+dir)
		}
		from := fmt.Sprint("begins at step ", at)
		at += 2
		j := launchRanks(t, n, global, env, "100", "stop-at", fmt.Sprint(at))
		j.mustEnd()
		if s := j.out.String(); strings.Count(s, from) != n || strings.Count(s, "has saved") != n {
			t.Fatalf("%d ranks: want all to continue with %q and save step %d:\n%s", n, from, at, s)
		}
	}
	npy := filepath.Join(dir, "u2.npy")
	must(t, built.holdfast, "export", "--from", filepath.Join(dir, "ckpt"), "5", "u2", "-o", npy)
	b, err := os.ReadFile(npy)
	if want := 17*19*8 + 128; err != nil || len(b) != want || !strings.Contains(string(b[:128]), "(17, 19)") {
		t.Errorf("export wrote %d bytes (%v), want %d with the shape", len(b), err, want)
	}
	out, err := exec.Command(built.holdfast, "verify", filepath.Join(dir, "ckpt")).CombinedOutput()
	if err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
}

// TestOtherCountRefused: what cannot be restored by another number of ranks, or is declared wrongly, is refused by
// name.
func TestOtherCountRefused(t *testing.T) {
	global := compile(t, "gcc", "testdata/global.c", "-L"+built.lib, "-lholdfast", "-Wl,-rpath,"+built.lib, "-ldl")
	t.Run("per rank", func(t *testing.T) {
		dir := t.TempDir()
		env := append(environ(t, dir), "PLAIN=1")
		launchRanks(t, 2, global, env, "100", "stop-at", "2").mustEnd()
		j := launchRanks(t, 1, global, env, "100")
		codes := j.wait()
		if s := j.out.String(); !slices.Equal(codes, []int{3}) || !strings.Contains(s, `"own" is protected per rank`) ||
			!strings.Contains(s, "start 2 ranks") || !strings.Contains(s, "use hf_protect_global ") ||
			strings.Contains(s, "ProtectList") || strings.Contains(s, "start the program that wrote them") {
			t.Errorf("codes %v:\n%s", codes, s)
		}
		out, err := exec.Command(built.holdfast, "report", "--json", dir).CombinedOutput()
		want := fmt.Sprintf(`"program":%q`, filepath.Base(global))
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("report has no %s (%v): %.400s", want, err, out)
		}
	})
	for _, tc := range []struct{ mode, want string }{
		{"hole", "no rank owns"},
		{"differs", `"note"`},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			j := launchRanks(t, 2, global, environ(t, t.TempDir()), "4", tc.mode, "2")
			j.wait()
			if s := j.out.String(); !strings.Contains(s, tc.want) || strings.Contains(s, "has saved") {
				t.Errorf("want %q and no checkpoint:\n%s", tc.want, s)
			}
		})
	}
}

// TestOtherCountsFromMemory has a daemon that outlives the starts: as many ranks as before restore global arrays from
// its memory, other numbers from the levels.
func TestOtherCountsFromMemory(t *testing.T) {
	global := compile(t, "gcc", "testdata/global.c", "-L"+built.lib, "-lholdfast", "-Wl,-rpath,"+built.lib, "-ldl")
	env := append(environ(t, t.TempDir()), "HOLDFAST_LOCAL="+t.TempDir())
	said, end := staying(t, env)
	at := 0
	for _, start := range []struct{ ranks, memory int }{{2, 0}, {2, 1}, {3, 0}, {1, 0}, {1, 1}} {
		from := fmt.Sprint("begins at step ", at)
		at += 2
		before := strings.Count(said.String(), "level=memory")
		j := launchRanks(t, start.ranks, global, env, "100", "kill-at", fmt.Sprint(at))
		j.wait()
		if n := strings.Count(j.out.String(), from); n != start.ranks {
			t.Fatalf("%d of %d ranks continue with %q:\n%s\n%s", n, start.ranks, from, j.out, said)
		}
		if n := strings.Count(said.String(), "level=memory") - before; n != start.memory {
			t.Errorf("step %d: %d starts read the daemon's memory, want %d:\n%s", at, n, start.memory, said)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}
