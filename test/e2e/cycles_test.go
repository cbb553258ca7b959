package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

var (
	cycles     = flag.Int("cycles", 6, "cycles of cut, kill and restart")
	cyclesSeed = flag.Uint64("cycles-seed", 1, "first seed of the cycles")
)

// TestRestartCycles cuts a program, kills all of it at some moment, starts it again
// under the other MPI with its ranks in other places, and so on; a fifth of the kills
// hit the commit of the first epoch. No start needs a person, and what comes out in the
// end is what the undisturbed run gives.
func TestRestartCycles(t *testing.T) {
	for _, l := range launchers {
		if err := l.Available(); err != nil {
			t.Skip(err)
		}
	}
	done, first, half := 0, 0, 0
	for seed := *cyclesSeed; done < *cycles; seed++ {
		rng := rand.New(rand.NewPCG(seed, 99))
		l := newLife(t, rng)
		kills := 1 + rng.IntN(4)
		aimed := rng.IntN(2) == 0 // some 2.5 kills a life: a fifth of all
		for k := range kills {
			if k == 0 && aimed {
				first++
				if l.killInCommit(t) {
					half++
				}
			} else {
				l.killSometime(t)
			}
			done++
			if t.Failed() {
				t.Fatalf("seed %d, kill %d", seed, k)
			}
		}
		l.finish(t)
		if t.Failed() {
			t.Fatalf("seed %d, the last start", seed)
		}
	}
	t.Logf("%d cycles from seed %d; %d kills aimed at the first commit, %d of which left a manifest in some "+
		"places only", done, *cyclesSeed, first, half)
}

// life is one job from its first start to its end.
type life struct {
	rng    *rand.Rand
	base   string
	dirs   dirs
	order  []int // directory of each rank
	mpi    int
	args   []string
	global bool
	want   string
}

const lifeRanks = 3

func newLife(t *testing.T, rng *rand.Rand) *life {
	t.Helper()
	shape := []string{"stencil", "grid", "broadcast"}[rng.IntN(3)]
	l := &life{rng: rng, dirs: newDirs(t), base: t.TempDir(), mpi: rng.IntN(len(launchers)), global: rng.IntN(2) == 0,
		args: []string{"-shape", shape, "-steps", "400", "-pace", "200us"}}
	for r := range lifeRanks {
		if err := os.Mkdir(filepath.Join(l.base, fmt.Sprint(r)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l.order = rng.Perm(lifeRanks)
	l.want = uncutResult(t, 0, lifeRanks, l.args)
	return l
}

// start starts the job once more, elsewhere.
func (l *life) start(t *testing.T, more ...string) *job {
	t.Helper()
	l.mpi = (l.mpi + 1) % len(launchers)
	order := l.order
	l.order = l.rng.Perm(lifeRanks)
	env := []string{"HOLDFAST_KEEP=2"}
	if l.global {
		env = append(env, "HOLDFAST_GLOBAL="+l.dirs.global)
	}
	j := &job{mpi: l.mpi, ranks: lifeRanks, args: append(append([]string{}, l.args...), more...), env: env,
		local: func(r int) string { return filepath.Join(l.base, fmt.Sprint(order[r])) }}
	j.start(t)
	return j
}

// held returns a start that stays half-way until it is killed.
func (l *life) held(t *testing.T) *job {
	t.Helper()
	j := l.start(t, "-result", l.dirs.result, "-hold", l.dirs.result+".never")
	if !j.ready(t) {
		t.Errorf("a start by itself failed: exit %d\n%s", j.wait(), j.output())
	}
	return j
}

// killNow kills every rank at once.
func (j *job) killNow() {
	for r := range j.ranks {
		j.signal(r, syscall.SIGKILL)
	}
	j.kill()
	<-j.waited
}

// manifests counts the local directories with a manifest.
func (l *life) manifests() int {
	list, _ := filepath.Glob(filepath.Join(l.base, "*", "epoch-*", "manifest")) // the pattern is well-formed
	return len(list)
}

// killInCommit kills the job while it commits its first epoch, and reports whether that
// left the manifest in some of the directories only.
func (l *life) killInCommit(t *testing.T) bool {
	j := l.held(t)
	j.signal(l.rng.IntN(lifeRanks), syscall.SIGUSR1)
	for end := time.Now().Add(time.Minute); l.manifests() == 0 && j.running() && time.Now().Before(end); {
	}
	j.killNow()
	n := l.manifests()
	return n > 0 && n < lifeRanks
}

// killSometime asks for up to two checkpoints and kills the job at some moment.
func (l *life) killSometime(t *testing.T) {
	j := l.held(t)
	for range l.rng.IntN(3) {
		j.signal(l.rng.IntN(lifeRanks), syscall.SIGUSR1)
		time.Sleep(time.Duration(l.rng.IntN(60)) * time.Millisecond) // a random moment, not a wait for anything
	}
	j.killNow()
}

// finish lets the job come to its end.
func (l *life) finish(t *testing.T) {
	j := l.start(t, "-result", l.dirs.result)
	if code := j.wait(); code != 0 {
		t.Fatalf("the last start: exit %d\n%s", code, j.output())
	}
	if got := l.dirs.read(t); got != l.want {
		t.Errorf("got %s, the undisturbed run %s\n%s", got, l.want, j.output())
	}
}
