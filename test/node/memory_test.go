package node

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// supervised starts the ranks of walk under holdfast run --daemons, which starts them again when they die.
// line are its arguments after the file of the result. Steps take their milliseconds until on is called.
func supervised(t *testing.T, walk, dir string, line ...string) (j *job, name string, levels []string, on func()) {
	t.Helper()
	slow, on := slowly(t)
	name, levels = filepath.Join(dir, "got"), []string{filepath.Join(dir, "ckpt"), t.TempDir()}
	env := append(environ(t, levels[0]), "HOLDFAST_LOCAL="+levels[1], slow)
	env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "HOLDFAST_NODE_KEY=") })
	script := filepath.Join(dir, "ranks.sh") // its ranks may outlive it, as those of an mpirun
	text := fmt.Sprintf("#!/bin/sh\nfor r in $(seq 0 %d)\ndo PMI_RANK=$r PMI_SIZE=%d setsid \"$@\" & all=\"$all $!\"\n"+
		"done\nfor p in $all; do wait $p || code=$?; done\nexit ${code:-0}\n", ranks-1, ranks)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	args := append([]string{built.holdfast, "run", "--daemons", "--", script, walk, long, name}, line...)
	return launchOne(t, env, args), name, levels, on
}

// damage flips bits in all that the directories have of shards, except for their ends.
func damage(t *testing.T, dirs []string) {
	t.Helper()
	files := 0
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".shard") && !strings.HasSuffix(name, ".shards") {
				return err
			}
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			for i := 16 << 10; i < len(b)-32<<10; i += 4 << 10 {
				b[i] ^= 1
			}
			files++
			return os.WriteFile(name, b, 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < ranks+1 {
		t.Fatalf("damaged %d files, want one of each rank and one at global", files)
	}
}

// TestRestartFromMemory kills a rank with an epoch at all levels. The next start restores it from the memory
// of the daemon alone: every shard in the directories is damaged meanwhile. The survivors have left theirs, too. One is
// stopped, and is still there when its launcher has ended and the next start begins: the daemon kills it.
func TestRestartFromMemory(t *testing.T) {
	walk := compile(t, "gcc", "testdata/walk.c")
	want := uncut(t, walk)
	j, name, levels, on := supervised(t, walk, t.TempDir(), "30")
	j.await("begins at step 0")
	if err := syscall.Kill(ranksOf(t, walk)[0], syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	j.await("level=global")
	damage(t, levels)
	there := ranksOf(t, walk)
	err := errors.Join(syscall.Kill(there[0], syscall.SIGSTOP), syscall.Kill(there[1], syscall.SIGKILL))
	if err != nil {
		t.Fatal(err)
	}
	j.await("start 2:")
	on()
	j.mustEnd()
	s := j.out.String()
	if strings.Contains(s, "start 3:") || strings.Count(s, "holdfast: restored") != 1 ||
		strings.Count(s, "level=memory bytes") != 1 {
		t.Errorf("want start 2 to restore all ranks from memory:\n%s", s)
	}
	if strings.Count(s, "begins at step 0") != ranks || !bytes.Equal(result(t, name), want) {
		t.Errorf("the restarted program computed something else:\n%s", s)
	}
	out, err := exec.Command(built.holdfast, "report", "--json", levels[0]).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte(`"restored_from":"memory"`)) {
		t.Errorf("the report of the event log does not say that memory was read (%v):\n%s", err, out)
	}
}

// TestRestartFromMemoryOfFinished kills a rank when the others wait for it in hf_finalize. They have left their memory
// as the one has that was computing.
func TestRestartFromMemoryOfFinished(t *testing.T) {
	walk := compile(t, "gcc", "testdata/walk.c")
	want := uncut(t, walk)
	j, name, levels, on := supervised(t, walk, t.TempDir(), "30")
	j.await("begins at step 0")
	victim := ranksOf(t, walk)[0]
	if err := syscall.Kill(victim, syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	j.await("level=global")
	damage(t, levels)
	if err := syscall.Kill(victim, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	on()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		files, err := filepath.Glob(name + ".*")
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == ranks-1 && len(ranksOf(t, walk)) == ranks && othersSleep(t, walk, victim) {
			break
		}
		if time.Since(start) > limit {
			t.Fatalf("the others have not come to their end after %v:\n%s", limit, j.out)
		}
	}
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	j.mustEnd()
	s := j.out.String()
	if strings.Count(s, "holdfast: restored") != 1 || strings.Count(s, "level=memory bytes") != 1 {
		t.Errorf("want all ranks restored from memory:\n%s", s)
	}
	if strings.Count(s, "begins at step 0") != ranks || !bytes.Equal(result(t, name), want) {
		t.Errorf("the restarted program computed something else:\n%s", s)
	}
}

// othersSleep reports whether all ranks of a program but one wait in a call of the kernel.
func othersSleep(t *testing.T, program string, one int) bool {
	for _, pid := range ranksOf(t, program) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		if pid != one && !bytes.Contains(stat, []byte(") S ")) {
			return false
		}
	}
	return true
}

// TestRestartFromPinnedMemory: a driver lets go of a rank's pages later than the rank has ended, and the next start
// restores from memory all the same.
func TestRestartFromPinnedMemory(t *testing.T) {
	walk := compile(t, "gcc", "testdata/walk.c")
	want := uncut(t, walk)
	dir := t.TempDir()
	now := filepath.Join(dir, "now")
	j, name, levels, on := supervised(t, walk, dir, "30", "pin", now)
	j.await("begins at step 0")
	if err := syscall.Kill(ranksOf(t, walk)[0], syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	j.await("level=global")
	damage(t, levels)
	if err := os.WriteFile(now, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j.await("waiting for a driver")
	if err := os.WriteFile(now+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j.await("start 2:")
	on()
	j.mustEnd()
	s := j.out.String()
	if strings.Count(s, "holdfast: restored") != 1 || strings.Count(s, "level=memory bytes") != 1 {
		t.Errorf("want all ranks restored from memory:\n%s", s)
	}
	if strings.Count(s, "begins at step 0") != ranks || !bytes.Equal(result(t, name), want) {
		t.Errorf("the restarted program computed something else:\n%s", s)
	}
}

// TestRestartFromScribbledMemory: a rank that has written over its arenas before it died restores from a level
// and reports the reason, while the others restore from memory.
func TestRestartFromScribbledMemory(t *testing.T) {
	walk := compile(t, "gcc", "testdata/walk.c")
	want := uncut(t, walk)
	dir := t.TempDir()
	now := filepath.Join(dir, "now")
	j, name, _, on := supervised(t, walk, dir, "30", "scribble", now)
	j.await("begins at step 0")
	if err := syscall.Kill(ranksOf(t, walk)[0], syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	j.await("level=global")
	if err := os.WriteFile(now, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j.await("start 2:")
	on()
	j.mustEnd()
	s := j.out.String()
	if strings.Contains(s, "level=memory bytes") || !strings.Contains(s, "memory (rank ") ||
		!strings.Contains(s, "has left is damaged; reading a level") {
		t.Errorf("want %d ranks restored from memory, and one that says why not:\n%s", ranks-1, s)
	}
	if strings.Count(s, "begins at step 0") != ranks || !bytes.Equal(result(t, name), want) {
		t.Errorf("the restarted program computed something else:\n%s", s)
	}
}

// TestCrashAfterCapture kills every rank as soon as its state is captured. The daemon writes and commits the
// epoch all the same, and the next start restores it from memory.
func TestCrashAfterCapture(t *testing.T) {
	walk := compile(t, "gcc", "testdata/walk.c")
	want := uncut(t, walk)
	j, name, _, _ := supervised(t, walk, t.TempDir(), "0", "kill-at", "11")
	j.mustEnd()
	s := j.out.String()
	if strings.Count(s, "begins at step 11\n") != ranks || strings.Count(s, "level=memory bytes") != 1 {
		t.Errorf("want %d ranks that begin at step 11, restored from memory:\n%s", ranks, s)
	}
	if !bytes.Equal(result(t, name), want) {
		t.Error("the restarted program computed something else")
	}
}

// staying starts a daemon that serves one start after the other, and returns what it says, and what ends it.
func staying(t *testing.T, env []string) (said *testbuf.Buffer, end func() error) {
	t.Helper()
	d := exec.Command(built.holdfast, "node", "--stay")
	said = &testbuf.Buffer{}
	d.Env, d.Stderr = env, said
	stay, err := d.StdinPipe()
	ready, rerr := d.StdoutPipe()
	if err := errors.Join(err, rerr); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		t.Fatalf("the daemon says %q (%v)", line, err)
	}
	return said, func() error { return errors.Join(stay.Close(), d.Wait()) }
}

// awaitIn waits until what a daemon says is as wanted.
func awaitIn(t *testing.T, said *testbuf.Buffer, wanted func(s string) bool) {
	t.Helper()
	for start := time.Now(); !wanted(said.String()); time.Sleep(time.Millisecond) {
		if time.Since(start) > limit {
			t.Fatalf("the daemon says after %v:\n%s", limit, said)
		}
	}
}

// TestKilledAnywhereInOneDaemon is TestKilledAnywhere with a daemon that stays: ranks restore from memory, unless it
// was being written, and the last start ends with the right bytes.
func TestKilledAnywhereInOneDaemon(t *testing.T) {
	steps := fmt.Sprint(1500 * *kills) // as there
	walk := compile(t, "gcc", "testdata/walk.c")
	dir := t.TempDir()
	launchJob(t, walk, environ(t, t.TempDir()), steps, filepath.Join(dir, "want"), "0").mustEnd()
	rng := rand.New(rand.NewPCG(*killSeed, 2))
	t.Logf("seed %d", *killSeed)
	env, name := environ(t, filepath.Join(dir, "ckpt")), filepath.Join(dir, "got")
	env = append(env, "HOLDFAST_INTERVAL=1ms", "HOLDFAST_LOCAL="+t.TempDir())
	said, end := staying(t, env)
	last := 0 // step of the newest start
	for i := range *kills / 2 {
		committed := strings.Count(said.String(), "committed")
		j := launchJob(t, walk, env, steps, name, "2")
		for range ranks {
			j.await("begins at step")
		}
		if i%2 == 0 { // as there
			awaitIn(t, said, func(s string) bool { return strings.Count(s, "committed") > committed })
		}
		time.Sleep(time.Duration(rng.IntN(200_000)) * time.Microsecond) // the moment itself
		if err := j.ranks[rng.IntN(ranks)].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		j.wait()
		_, rest, _ := strings.Cut(j.out.String(), "begins at step ")
		at := 0
		if _, err := fmt.Sscan(rest, &at); err != nil {
			t.Fatal(err)
		}
		if at < last {
			t.Fatalf("kill %d: begins at step %d, the start before it at %d:\n%s%s", i, at, last, j.out, said)
		}
		last = at
	}
	launchJob(t, walk, append(env, "HOLDFAST_INTERVAL=1h"), steps, name, "0").mustEnd()
	if err := end(); err != nil {
		t.Error(err)
	}
	s := said.String()
	if strings.Contains(s, "panic") || strings.Contains(s, "fatal error") || strings.Contains(s, "damaged") {
		t.Errorf("the daemon crashed, or its memory was damaged:\n%s", s)
	}
	t.Logf("%d restores of all ranks from memory, %d not", strings.Count(s, "level=memory bytes"),
		strings.Count(s, "holdfast: restored")-strings.Count(s, "level=memory bytes"))
	if !bytes.Equal(result(t, name), result(t, filepath.Join(dir, "want"))) {
		t.Error("the restarted program computed something else")
	}
}

// TestNamedFromMemory restarts from a checkpoint with a name that the start before has left in memory.
func TestNamedFromMemory(t *testing.T) {
	named := compile(t, "gcc", "testdata/named.c")
	dir := t.TempDir()
	env := append(environ(t, filepath.Join(dir, "ckpt")), "HOLDFAST_LOCAL="+t.TempDir())
	said, end := staying(t, env)
	j := launchJob(t, named, env, "write", dir)
	for range ranks {
		j.await("has written")
	}
	j.kill()
	j.wait()
	before := said.String()
	launchJob(t, named, env, "read", dir).mustEnd()
	if err := end(); err != nil {
		t.Error(err)
	}
	after := strings.TrimPrefix(said.String(), before)
	if n := strings.Count(after, "epoch=4 level=memory bytes"); n != 1 || strings.Contains(before, "level=memory") {
		t.Errorf("%d starts restored version 11 from memory, want 1, all ranks:\n%s%s", n, before, after)
	}
}

// TestDaemonOfRunDies: holdfast run leaves a program running whose daemon dies, and hears the next one: a rank that is
// killed later restarts from a checkpoint that this one took.
func TestDaemonOfRunDies(t *testing.T) {
	t.Setenv("OUTLIVES", "1")
	walk := compile(t, "gcc", "testdata/walk.c")
	want := uncut(t, walk)
	j, name, _, on := supervised(t, walk, t.TempDir(), "30")
	for range ranks {
		j.await("begins at step 0")
	}
	_, after, found := strings.Cut(j.out.String(), "node daemons are ready: ")
	var daemon int
	if _, pid, ok := strings.Cut(after, ", process "); !found || !ok {
		t.Fatalf("no daemon:\n%s", j.out)
	} else if _, err := fmt.Sscan(pid, &daemon); err != nil {
		t.Fatalf("%v in %q", err, pid)
	}
	if err := syscall.Kill(daemon, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	j.await("another node daemon has taken the place")
	j.await("level=global")
	if err := syscall.Kill(ranksOf(t, walk)[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	j.await("start 2:")
	on()
	j.mustEnd()
	if s := j.out.String(); strings.Contains(s, "start 3:") || !bytes.Equal(result(t, name), want) {
		t.Errorf("want two starts and the result of the undisturbed run:\n%s", s)
	} else if strings.Count(s, "begins at step 0") != ranks {
		t.Errorf("the second start began anew:\n%s", s)
	}
}
