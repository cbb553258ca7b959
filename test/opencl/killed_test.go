package opencl

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/child"
)

var (
	killCount = flag.Int("kills", 2, "kills of each process that serves a program, at random moments")
	killSeed  = flag.Uint64("kill-seed", 18, "seed of the moments and of what the program does")
)

// TestKilledAtRandom: a process that serves a program is killed at a random moment, while the
// program's threads use the ring, slots, mappings, reads that do not block and waits. Each
// thread gets CL_DEVICE_NOT_AVAILABLE, or an error of the command that a command waited for,
// nothing hangs, and all bytes that were reported as read are right. Soaks set -kills and -kill-seed.
func TestKilledAtRandom(t *testing.T) {
	commandLimit = 10*time.Minute + time.Duration(*killCount)*30*time.Second
	for _, c := range []struct {
		name, device string
		victim       func(t *testing.T, l *lab, program int) int
	}{
		{"command", platform, func(t *testing.T, _ *lab, program int) int { return serverOf(t, program) }},
		{"server", "", func(_ *testing.T, l *lab, _ int) int { return l.servers[len(l.servers)-1] }},
		{"worker", "", func(t *testing.T, l *lab, _ int) int { return workerOf(t, l.servers[len(l.servers)-1]) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(*killSeed, 21))
			l := newPoCLLab(t)
			for n := range *killCount {
				if c.device == "" && (n == 0 || c.name == "server") {
					_ = os.Remove(filepath.Join(l.dir, "holdfast-gpud.sock")) // a killed one leaves it
					l.serve()
				}
				seed := strconv.Itoa(r.IntN(1 << 20))
				p := l.startUntil("going", through(c.device), "killed", seed)
				time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
				if err := syscall.Kill(c.victim(t, l, p.Process.Pid), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				endsByLoss(t, p, seed)
				if c.name == "worker" { // the server serves on
					if out := l.run(through(""), "vector"); out == "" {
						t.Error("no other program is served")
					}
				}
			}
		})
	}
}

// TestKilledInEndlessKernel: a program that is killed while a kernel of its own does not end leaves no process behind
// that computes, whether it waited for the kernel or not, with a server and without.
func TestKilledInEndlessKernel(t *testing.T) {
	for _, c := range []struct {
		name, device string
		args         []string
	}{
		{"command", platform, nil},
		{"command of a waiting program", platform, []string{"wait"}},
		{"worker of a waiting program", "", []string{"wait"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // each waits for seconds
			l := newPoCLLab(t)
			if c.device == "" {
				l.serve()
			}
			p := l.startUntil("launched", through(c.device), "endless", c.args...)
			served := []int{serverOf(t, p.Process.Pid)}
			if c.device == "" {
				served = append(served, workerOf(t, l.servers[0]))
			}
			_ = p.Process.Kill()
			_ = p.Wait() // it was killed
			for _, pid := range served {
				for end := time.Now().Add(time.Minute); exists("/proc/" + strconv.Itoa(pid)); {
					if time.Now().After(end) {
						_ = syscall.Kill(pid, syscall.SIGKILL)
						t.Errorf("process %d, which served the program, is still there a minute after its end", pid)
						break
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
}

// endsByLoss waits for the end of a program whose device was killed.
func endsByLoss(t *testing.T, p *running, seed string) {
	t.Helper()
	out, err := p.rest()
	if err != nil || !strings.HasSuffix(out, "over\n") {
		t.Fatalf("program with seed %s: %v\n%s%s", seed, err, out, p.errs.Bytes())
	}
	for _, m := range threadLine.FindAllStringSubmatch(out, -1) {
		if m[1] != "-2" && m[1] != "-14" {
			t.Errorf("program with seed %s: thread %s: want -2 or -14", seed, m[0])
		}
	}
}

// threadLine is the last line of a thread of killed.c: its first error and the place.
var threadLine = regexp.MustCompile(`(?m)^\d+: (-?\d+) at .*$`)

// TestGarbage: a program that writes random bytes into the memory that it shares with its
// server, while that is in use, harms only itself.
func TestGarbage(t *testing.T) {
	commandLimit = 10*time.Minute + time.Duration(*killCount)*30*time.Second
	l := newPoCLLab(t)
	l.serve()
	want := l.run(without, "vector")
	wants := l.run(without, "moves", "20", filepath.Join(l.dir, "never"))
	r := rand.New(rand.NewPCG(*killSeed, 22))
	for range *killCount {
		seed := strconv.Itoa(r.IntN(1 << 20))
		p := l.startUntil("going", through(""), "killed", seed, "garbage")
		for _, program := range [][]string{{"vector"}, {"moves", "20", filepath.Join(l.dir, "never")}} {
			want := map[string]string{"vector": want, "moves": wants}[program[0]]
			if got := l.run(through(""), program[0], program[1:]...); got != want {
				t.Errorf("beside a program with seed %s that writes garbage: got\n%s\nwant\n%s", seed, got, want)
			}
		}
		_ = p.Process.Kill() // it may be its own victim in any way
		_ = p.Wait()
	}
	if got := l.run(through(""), "vector"); got != want {
		t.Errorf("after programs that wrote garbage: got %q, want %q", got, want)
	}
}

// workerOf returns the process of a server that serves its newest program.
func workerOf(t *testing.T, server int) int {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	newest, started := 0, uint64(0) // numbers of processes come around again, times do not
	for _, dir := range list {
		pid, _ := strconv.Atoi(filepath.Base(dir)) // a number
		p, err := child.Look(pid)
		if err != nil || p.Ended || p.Parent != server { // it may have ended
			continue
		}
		if p.Started > started {
			newest, started = pid, p.Started
		}
	}
	if newest == 0 {
		t.Fatal("the server has no worker")
	}
	return newest
}
