package node

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"golang.org/x/sys/unix"
)

var deaths = flag.Int("deaths", 4, "how many daemons TestDaemonKilledAnywhere kills")

// life is one start of the ranks of guard, and the daemons that die meanwhile.
type life struct {
	*job
	key   string
	dir   string // of the files that the ranks look at
	dead  int
	began int // at which step
}

// daemon returns the process that serves the job, other than one that has died; 0: there is none. While ranks connect
// there may be several: of those that ranks start at the same time one serves, and the others end.
func (l *life) daemon(not int) int {
	if all := l.daemons(not); len(all) > 0 {
		return all[0]
	}
	return 0
}

// serving returns the daemon of a job whose ranks are connected.
func (l *life) serving() int {
	l.t.Helper()
	var all []int
	l.until("not one daemon", func() bool { all = l.daemons(0); return len(all) == 1 })
	return all[0]
}

func (l *life) daemons(not int) (pids []int) {
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, name := range names {
		var pid int
		line, err := os.ReadFile(name)
		if _, serr := fmt.Sscanf(name, "/proc/%d/cmdline", &pid); err != nil || serr != nil || pid == not {
			continue
		}
		if s := string(line); strings.Contains(s, "node\x00--tell") && strings.Contains(s, "--key\x00"+l.key+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// until waits for something that must come.
func (l *life) until(what string, come func() bool) {
	l.t.Helper()
	for start := time.Now(); !come(); time.Sleep(2 * time.Millisecond) {
		if time.Since(start) > limit {
			l.t.Fatalf("after %v: %s:\n%s", limit, what, l.out)
		}
	}
}

// over reports whether a process has ended.
func over(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) // all its threads, not the first alone
	return n > 0
}

func (l *life) slay(daemon int) {
	l.t.Helper()
	err := syscall.Kill(daemon, syscall.SIGKILL)
	for errors.Is(err, syscall.ESRCH) { // it was not the one that serves
		ended := daemon
		l.until("no other daemon", func() bool { daemon = l.daemon(ended); return daemon != 0 })
		err = syscall.Kill(daemon, syscall.SIGKILL)
	}
	if err != nil {
		l.t.Fatalf("kill daemon %d: %v\n%s", daemon, err, l.out)
	}
	l.until("the daemon lives on", func() bool { return over(daemon) })
	l.dead++
}

// mourn has the ranks know that a daemon is dead; they must have noticed by their second point from now on. It returns
// when all have, and a checkpoint has been taken since.
func (l *life) mourn() {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, fmt.Sprint("dead.", l.dead)), nil, 0o600); err != nil {
		l.t.Fatal(err)
	}
	for r := range ranks {
		l.until("a rank does not notice", func() bool {
			return l.lost() || strings.Count(l.out.String(), fmt.Sprintf("rank %d is told of", r)) >= l.dead
		})
	}
	l.protected()
}

// protected returns when a further checkpoint has been taken.
func (l *life) protected() {
	l.t.Helper()
	before := strings.Count(l.out.String(), "holdfast: committed")
	l.until("no checkpoint since", func() bool {
		return l.lost() || strings.Count(l.out.String(), "holdfast: committed") > before
	})
	if l.lost() {
		l.t.Fatalf("a rank has ended:\n%s", l.out)
	}
}

// lost reports whether a rank has ended.
func (l *life) lost() bool {
	return slices.ContainsFunc(l.pids(), over)
}

func (l *life) pids() (all []int) {
	for _, c := range l.ranks {
		all = append(all, c.Process.Pid)
	}
	return all
}

// TestDaemonKilledAnywhere kills daemons at random moments: while ranks compute, while a checkpoint is taken, written
// or committed, soon after their own start, in hf_init, hf_restore and hf_finalize. Each rank learns it at the first
// point that it reaches, checkpoints go on, no start begins before the one that came before it, and the last one ends
// with the right bytes.
func TestDaemonKilledAnywhere(t *testing.T) {
	guard := compile(t, "gcc", "testdata/guard.c")
	steps := fmt.Sprint(2000 * *deaths)
	dir := t.TempDir()
	launchJob(t, guard, environ(t, t.TempDir()), steps, filepath.Join(dir, "want"), "0", dir).mustEnd()
	rng := rand.New(rand.NewPCG(*killSeed, 3))
	env, name := environ(t, filepath.Join(dir, "ckpt")), filepath.Join(dir, "got")
	env = append(env, "HOLDFAST_INTERVAL=40ms", "HOLDFAST_LOCAL="+t.TempDir())
	begun := func() *life {
		l := &life{key: keyOf(env), dir: t.TempDir()}
		if err := os.WriteFile(filepath.Join(l.dir, "slow"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		l.job = launchJob(t, guard, env, steps, name, "2000", l.dir)
		return l
	}
	moment := func(most time.Duration) { time.Sleep(time.Duration(rng.Int64N(int64(most)))) }
	last, phases := 0, map[string]int{}
	var waits []time.Duration
	running := func() *life {
		l := begun()
		l.until("not all ranks begin", func() bool {
			return l.lost() || strings.Count(l.out.String(), "begins at step") == ranks
		})
		_, rest, _ := strings.Cut(l.out.String(), "begins at step ")
		if _, err := fmt.Sscan(rest, &l.began); err != nil || l.began < last {
			t.Fatalf("begins at step %d, the start before at %d (%v):\n%s", l.began, last, err, l.out)
		}
		last = l.began
		l.protected()
		return l
	}
	end := func(l *life) {
		l.kill()
		l.wait()
		if s := l.out.String(); strings.Contains(s, "panic") || strings.Contains(s, "fatal error") {
			t.Fatalf("a daemon crashed:\n%s", s)
		}
	}
	l := running()
	for n := 0; n < *deaths; {
		phase := []string{"run", "run", "run", "run", "run", "run", "twice", "start", "start", "finalize"}[rng.IntN(10)]
		if n < 4 {
			phase = []string{"run", "finalize", "start", "twice"}[n] // however few there are
		}
		phases[phase]++
		switch phase {
		case "run", "twice":
			moment(100 * time.Millisecond)
			now := l.serving()
			killed := time.Now()
			l.slay(now)
			n++
			if phase == "twice" {
				next := 0
				l.until("no other daemon", func() bool { next = l.daemon(now); return next != 0 || l.lost() })
				moment(30 * time.Millisecond)
				l.slay(next)
				n++
				// Only one of the two may have been noticed.
				l.protected()
				end(l)
				l = running()
				continue
			}
			l.mourn()
			waits = append(waits, time.Since(killed))
		case "start":
			end(l)
			l = begun()
			now := 0
			l.until("no daemon", func() bool { now = l.daemon(0); return now != 0 })
			moment(60 * time.Millisecond)
			l.slay(now)
			n++
			l.until("ranks hang", func() bool {
				s := l.out.String()
				return l.lost() || strings.Count(s, "begins at step") == ranks && strings.Contains(s, "committed")
			})
			end(l)
			l = running()
		case "finalize":
			if err := syscall.Kill(l.pids()[rng.IntN(ranks)], syscall.SIGUSR2); err != nil {
				t.Fatal(err)
			}
			l.await("finalizes at step")
			moment(8 * time.Millisecond)
			if now := l.daemon(0); now != 0 {
				_ = syscall.Kill(now, syscall.SIGKILL) // it may have ended
				n++
			}
			l.mustEnd()
			end(l)
			l = running()
		}
	}
	end(l)
	l = running()
	if err := os.Remove(filepath.Join(l.dir, "slow")); err != nil {
		t.Fatal(err)
	}
	l.mustEnd()
	for r := range ranks {
		got, err := os.ReadFile(fmt.Sprint(name, ".", r))
		want, werr := os.ReadFile(fmt.Sprint(filepath.Join(dir, "want"), ".", r))
		if err != nil || werr != nil || !bytes.Equal(got, want) {
			t.Errorf("rank %d computed something else (%v, %v)", r, err, werr)
		}
	}
	slices.Sort(waits)
	late := slices.IndexFunc(waits, func(d time.Duration) bool { return d > 5*time.Second })
	t.Logf("seed %d: %v; from a kill to a new checkpoint: median %v, longest %v; index of the first above 5 s: %d",
		*killSeed, phases, waits[len(waits)/2], waits[len(waits)-1], late)
}

// keyOf returns the key of a job's daemon.
func keyOf(env []string) string {
	for _, v := range env {
		if key, ok := strings.CutPrefix(v, "HOLDFAST_NODE_KEY="); ok {
			return key
		}
	}
	return ""
}

// TestDaemonOfSomeRanksKilled has two daemons serve a job, as if it were on two nodes. When one is killed the job ends,
// and reports the reason: its ranks cannot use another daemon without those of the other.
func TestDaemonOfSomeRanksKilled(t *testing.T) {
	all := mpirun.Launchers()
	l := all[0]
	if err := l.Available(); err != nil {
		t.Skip(err)
	}
	heat := compile(t, l.Compiler(), "../../examples/heat-c/heat.c", "-Wno-unused-function",
		filepath.Join(built.lib, "libholdfast.a"))
	env := environ(t, filepath.Join(t.TempDir(), "ckpt"))
	script := filepath.Join(t.TempDir(), "rank.sh")
	text := fmt.Sprintf("#!/bin/sh\nexport HOLDFAST_NODE_KEY=$HOLDFAST_NODE_KEY.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\n"+
		"exec %s \"$@\"\n",
		heat)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	j := launchOne(t, env, l.Yielding().Command(nil, mpirun.Part{Ranks: 2,
		Command: []string{script, "48", "1000000", filepath.Join(t.TempDir(), "got"), "5"}}))
	j.await("heat: begins at step 0")
	d := &life{job: j, key: keyOf(env) + ".1"}
	d.slay(d.daemon(0))
	if codes := j.wait(); slices.Contains(codes, 0) {
		t.Errorf("exit codes %v, want an error", codes)
	}
	if s := j.out.String(); !strings.Contains(s, "has lost a rank") || !strings.Contains(s, "has died") {
		t.Errorf("nobody says that a rank is lost, and that its daemon has died:\n%s", s)
	}
}
