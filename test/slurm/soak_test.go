package slurm

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
)

var (
	deaths = flag.Int("deaths", 0, "random deaths to try; 0 = none")
	seed   = flag.Uint64("seed", 1, "seed of the random deaths")
)

// kinds are the ways for a node to die, and how it comes back.
var kinds = []struct{ die, back []string }{
	{[]string{"kill", "--power"}, []string{"revive"}},
	{[]string{"kill", "--crash"}, []string{"revive"}},
	{[]string{"kill", "--procs"}, nil},
	{[]string{"cut"}, []string{"heal"}},
	{[]string{"freeze"}, []string{"thaw"}},
}

// busy is a program that is nearly always in some phase of a checkpoint.
var busy = []string{"-shape", "stencil", "-steps", "250", "-pace", "10ms", "-size", "100000"}

var again = regexp.MustCompile(`computing again .*`)

// TestRandomDeaths lets nodes die at random moments, in random ways, and
// compares the result with the undisturbed run. No hand touches the job.
func TestRandomDeaths(t *testing.T) {
	n := *deaths
	if n == 0 {
		t.Skip("the long test of make soak-slurm; TestDeaths tries each kind once")
	}
	b := newBed(t, 5)
	rng := rand.New(rand.NewPCG(*seed, 0))
	for i := range n {
		mpi, kind, node := rng.IntN(len(mpis)), rng.IntN(len(kinds)), fmt.Sprint("n", 2+rng.IntN(3))
		after := time.Duration(rng.IntN(4000)) * time.Millisecond
		name := fmt.Sprintf("%d-%s-%s-%s", i, strings.TrimLeft(kinds[kind].die[len(kinds[kind].die)-1], "-"), node, mpis[mpi].name)
		t.Run(name, func(t *testing.T) { b.killAt(t, mpi, kind, node, after, name) })
		if t.Failed() {
			t.Fatalf("seed %d", *seed)
		}
	}
}

// killAt runs a job of four ranks with a spare node and lets one die.
func (b *bed) killAt(t *testing.T, mpi, kind int, node string, after time.Duration, name string) {
	j := b.submit(t, mpi, name, []string{"-N5", "--no-kill", "-t", "10"}, []string{"--spares", "1"}, nil, busy, 4, "HOLDFAST_INTERVAL=150ms", "HOLDFAST_CUT_TIMEOUT=20s")
	j.says(t, "computing on 4 ranks", 1)
	pause := time.NewTimer(after)
	<-pause.C
	moment := newest(j.log(), "global")
	b.Verb(t, append(kinds[kind].die, node)...)
	j.ends(t)
	account := again.FindString(j.log())
	if account == "" {
		account = "had ended before"
	}
	t.Logf("%s %s after %v, %d epochs at global: %s", strings.Join(kinds[kind].die, " "), node, after, moment, account)
	if t.Failed() || testing.Verbose() {
		t.Log("\n" + j.decisions())
	}
	if back := kinds[kind].back; back != nil {
		b.Verb(t, append(back, node)...)
	}
	_ = b.TryCommand("scancel", j.id) // it has ended, but for a step that Slurm believes in
	b.Verb(t, "wait", node, "up", "90")
}
