package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	moments = flag.Int("moments", 8, "checkpoints at random moments, per MPI")
	seed    = flag.Uint64("seed", 1, "seed of the random moments")
)

// programs are the shapes under test, with ranks and steps that make them run
// about a second. Those with more ranks than a small machine has cores take few
// steps: ranks busy-wait, and a restart runs all the steps that are left.
var programs = []struct {
	shape string
	ranks int
	args  []string
}{
	{"stencil", 2, []string{"-steps", "500", "-pace", "1ms"}},
	{"apart", 2, []string{"-steps", "2500", "-pace", "200us"}},
	{"broadcast", 3, []string{"-steps", "400", "-pace", "1ms"}},
	{"grid", 4, []string{"-steps", "150", "-pace", "2ms"}},
	{"large", 2, []string{"-steps", "500", "-pace", "300us"}},
	{"stencil", 4, []string{"-steps", "150", "-pace", "2ms"}},
	{"tickets", 3, []string{"-steps", "400", "-pace", "1ms"}},
	{"polls", 2, []string{"-steps", "300", "-pace", "1ms"}},
}

// TestCutAtRandomMoments signals random ranks at random moments, then restarts
// from every epoch that came of it and compares each result with the
// uninterrupted run.
func TestCutAtRandomMoments(t *testing.T) {
	if testing.Short() {
		*moments = min(*moments, 6)
	}
	forEachMPI(t, func(t *testing.T, mpi int) {
		rng := rand.New(rand.NewPCG(*seed, uint64(mpi)))
		done, perRun := 0, min(12, max(1, *moments/len(programs)))
		for i := 0; done < *moments; i++ {
			p := programs[i%len(programs)]
			args := append([]string{"-shape", p.shape}, p.args...)
			want := uncutResult(t, mpi, p.ranks, args)
			n := cutAndReplay(t, mpi, p.ranks, args, want, min(perRun, *moments-done), rng)
			if n == 0 {
				t.Fatalf("%s on %d ranks: no checkpoint was committed (seed %d)", p.shape, p.ranks, *seed)
			}
			done += n
		}
		t.Logf("%d checkpoints, each restarted, seed %d", done, *seed)
	})
}

// cutAndReplay takes up to n checkpoints in one run and restarts from each; it
// returns how many there were.
func cutAndReplay(t *testing.T, mpi, ranks int, args []string, want string, n int, rng *rand.Rand) int {
	t.Helper()
	d := newDirs(t)
	defer os.RemoveAll(d.local)
	defer os.RemoveAll(d.global)
	// The program waits at half its steps for a test that has no core meanwhile.
	goOn := d.result + ".go"
	j := &job{mpi: mpi, ranks: ranks, args: append(args, "-result", d.result, "-hold", goOn), env: d.env()}
	j.start(t)
	j.ready(t)
	for i := range n {
		before := len(j.committed("local"))
		pause := time.NewTimer(time.Duration(rng.IntN(30000)) * time.Microsecond)
		select {
		case <-pause.C:
		case <-j.waited:
		}
		j.signal(rng.IntN(ranks), syscall.SIGUSR1)
		if !j.until(t, func() bool { return len(j.committed("local")) > before }) {
			break // the program has ended
		}
		if i == 0 {
			if err := os.WriteFile(goOn, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if code := j.wait(); code != 0 {
		t.Fatalf("%v on %d ranks: exit %d (seed %d)\n%s", args, ranks, code, *seed, j.output())
	}
	if got := d.read(t); got != want {
		t.Fatalf("%v on %d ranks: a checkpointed run gave %s, the uninterrupted one %s (seed %d)\n%s", args, ranks, got,
			want, *seed, j.output())
	}
	epochs := j.committed("global")
	for _, e := range epochs {
		replay(t, mpi, ranks, args, d, e, want)
	}
	return len(epochs)
}

func replay(t *testing.T, mpi, ranks int, args []string, d dirs, epoch int, want string) {
	t.Helper()
	if err := os.Remove(d.result); err != nil {
		t.Fatal(err)
	}
	j := &job{mpi: mpi, ranks: ranks, args: append(args, "-pace", "0", "-result", d.result),
		env: d.env(fmt.Sprint("HOLDFAST_EPOCH=", epoch))}
	j.start(t)
	if code := j.wait(); code != 0 {
		t.Fatalf("%v on %d ranks, restart from epoch %d: exit %d (seed %d)\n%s", args, ranks, epoch, code, *seed,
			j.output())
	}
	if !strings.Contains(j.output(), "restored=true") {
		t.Fatalf("epoch %d was not restored:\n%s", epoch, j.output())
	}
	if got := d.read(t); got != want {
		t.Fatalf("%v on %d ranks, restart from epoch %d gave %s, the uninterrupted run %s (seed %d)\n%s", args, ranks,
			epoch, got, want, *seed, j.output())
	}
}
