package opencl

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	moveCount = flag.Int("moves", 6, "moves of a program at random moments")
	moveSeed  = flag.Uint64("move-seed", 18, "seed of the moments and places")
)

// TestMovedAtRandom: a program with all kinds of objects is moved at random moments between
// two platforms and two servers, and prints what it does undisturbed. Soaks set -moves and
// -move-seed.
func TestMovedAtRandom(t *testing.T) {
	commandLimit += time.Duration(*moveCount) * 5 * time.Second
	l := newLab(t)
	l.serve()
	second := "unix:" + filepath.Join(l.dir, "second.sock")
	l.serve("--listen", second)
	const many = "1000000000" // rounds
	file := filepath.Join(l.dir, "enough")
	p := l.startUntil("round 0", through("remote="+l.socket()+","+platform), "moves", many, file)
	pid := strconv.Itoa(p.Process.Pid)
	lines := make(chan string, 1)
	errs := make(chan error, 1)
	go func() {
		rest, err := p.rest()
		lines <- rest
		errs <- err
	}()
	r := rand.New(rand.NewPCG(*moveSeed, 20))
	servers := []string{l.socket(), second}
	at := 0
	for n := range *moveCount {
		time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
		to := r.IntN(2)
		place := servers[to] + "," + []string{platform, another}[r.IntN(2)]
		if out, err := l.command(nil, "holdfast", "migrate", servers[at], pid, place).CombinedOutput(); err != nil {
			t.Fatalf("seed %d, move %d to %s: %v\n%s\n%s", *moveSeed, n, place, err, out, p.errs.Bytes())
		}
		at = to
	}
	l.file("enough", "")
	got, err := p.before+<-lines, <-errs
	if err != nil {
		t.Fatalf("seed %d: %v\n%s", *moveSeed, err, p.errs.Bytes())
	}
	rounds := strings.Count(got, "\n")
	t.Logf("seed %d: %d moves in %d rounds", *moveSeed, *moveCount, rounds)
	want := l.run(without, "moves", strconv.Itoa(rounds), filepath.Join(l.dir, "never"))
	if got == want {
		return
	}
	w := strings.Split(want, "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(w) || line != w[i] {
			t.Fatalf("seed %d: line %d is %q, want %q", *moveSeed, i, line, w[i])
		}
	}
}

// TestStatusAfterMove: holdfast status names the device that a program has been moved to, not the one that it asked
// first.
func TestStatusAfterMove(t *testing.T) {
	l := newLab(t)
	l.serve()
	file := filepath.Join(l.dir, "enough")
	p := l.startUntil("round 0", through("remote="+l.socket()+","+platform), "moves", "1000000000", file)
	pid := strconv.Itoa(p.Process.Pid)
	device := func() string {
		var of struct {
			Programs []struct{ Devices []string }
		}
		said := l.run(nil, "holdfast", "status", "--json", pid)
		if err := json.Unmarshal([]byte(said), &of); err != nil || len(of.Programs) != 1 {
			t.Fatalf("%v: %s", err, said)
		}
		return strings.Join(of.Programs[0].Devices, ", ")
	}
	first := device()
	l.move(pid, l.socket()+","+another)
	if there := device(); there == first || there == "" {
		t.Errorf("the program is on %q, and began on %q", there, first)
	}
	l.move(pid, l.socket()+","+platform)
	if back := device(); back != first {
		t.Errorf("the program is back on %q, and began on %q", back, first)
	}
	l.file("enough", "")
	if _, err := p.rest(); err != nil {
		t.Error(err)
	}
}
