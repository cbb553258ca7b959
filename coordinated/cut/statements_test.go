package cut

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func protocolText(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestStatements: every numbered statement of docs/PROTOCOL.md is made in the
// text and names tests and scenarios that exist, and no scenario is left over.
func TestStatements(t *testing.T) {
	text := protocolText(t)
	have := testsAndScenarios(t)
	row := regexp.MustCompile(`(?m)^\| (S\d+) \| (.*) \|$`)
	name := regexp.MustCompile("`([^`]+)`")
	rows := row.FindAllStringSubmatch(text, -1)
	if len(rows) < 30 {
		t.Fatalf("found %d statements, want 30", len(rows))
	}
	for i, r := range rows {
		if want := fmt.Sprintf("S%d", i+1); r[1] != want {
			t.Errorf("got statement %s, want %s", r[1], want)
		}
		if !regexp.MustCompile(r[1] + `\b`).MatchString(text[:strings.Index(text, "## 9.")]) {
			t.Errorf("%s is not in the text", r[1])
		}
		names := name.FindAllStringSubmatch(r[2], -1)
		if len(names) == 0 {
			t.Errorf("%s names no test", r[1])
		}
		for _, n := range names {
			if _, ok := have[n[1]]; !ok {
				t.Errorf("%s names %s, which does not exist", r[1], n[1])
			}
			have[n[1]] = true
		}
	}
	for n, named := range have {
		if !named && !strings.HasPrefix(n, "Test") {
			t.Errorf("scenario %s belongs to no statement", n)
		}
	}
}

// testsAndScenarios lists their names, none of them found in the document yet.
func testsAndScenarios(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	scenarios, _ := filepath.Glob("testdata/*.txt") // the pattern is well-formed
	for _, f := range scenarios {
		out[strings.TrimSuffix(filepath.Base(f), ".txt")] = false
	}
	tests, _ := filepath.Glob("*_test.go")
	// What only the whole can show.
	for _, of := range []string{"../*_test.go", "../jobtest/*_test.go", "../internal/*/*_test.go"} {
		driver, _ := filepath.Glob(of)
		tests = append(tests, driver...)
	}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, f := range tests {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range function.FindAllStringSubmatch(string(raw), -1) {
			out[m[1]] = false
		}
	}
	return out
}

// TestMessageTable: the document's table has a row for every kind.
func TestMessageTable(t *testing.T) {
	text := protocolText(t)
	for k := kindAsk; k <= KindWaiting; k++ {
		if !strings.Contains(text, "\n| "+k.String()+" | ") {
			t.Errorf("no row for %v", k)
		}
	}
}

// TestFingerprint: the fingerprints of all ranks cancel exactly when every
// communicator is level on all its members.
func TestFingerprint(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 3))
		n := 2 + rng.IntN(6)
		sum, level := uint64(0), true
		for c := range 1 + rng.IntN(4) {
			members := rng.Perm(n)[:1+rng.IntN(n)]
			least, most := ^uint64(0), uint64(0)
			for i := range members {
				k := Coll{Comm: fmt.Sprintf("c%d", c), Leader: i == 0, Size: len(members), Entered: 7}
				if rng.IntN(20) == 0 {
					k.Entered++
				}
				least, most = min(least, k.Entered), max(most, k.Entered)
				sum += fingerprint([]Coll{k})
			}
			level = level && least == most
		}
		if (sum == 0) != level {
			t.Errorf("seed %d: got sum %x, level %t", seed, sum, level)
		}
	}
}

// TestInvariants checks at every step of random runs what must hold of a single
// machine: one verdict per arrival, one end per epoch, and maxima that some
// member has reached.
func TestInvariants(t *testing.T) {
	for _, sh := range shapes {
		t.Run(sh.name, func(t *testing.T) {
			for seed := range uint64(30) {
				w := start(sh.name, seed, 2+int(seed%6))
				w.noise = seed%2 == 0
				g := &guard{w: w, waits: map[int]bool{}, ended: map[string]bool{}}
				w.onStep = g.check
				_ = w.run(1e9) // without a cut under noise: not what is tested here
				if g.err != nil {
					t.Fatalf("seed %d: %v", seed, g.err)
				}
			}
		})
	}
}

// guard watches the events and actions of all machines.
type guard struct {
	w     *model
	waits map[int]bool // ranks whose main thread waits for a verdict
	ended map[string]bool
	err   error
}

func (g *guard) check(r *modelRank, ev Event, actions []Action) {
	if _, ok := ev.(Arrived); ok {
		g.waits[r.id] = true
	}
	for _, a := range actions {
		switch a := a.(type) {
		case Release:
			if !g.waits[r.id] {
				g.err = fmt.Errorf("rank %d is released and does not wait", r.id)
			}
			g.waits[r.id] = false
		case Cut:
			g.end(r, a.Epoch)
		case GaveUp:
			g.end(r, a.Epoch)
		}
	}
	for comm, n := range r.m.max {
		if most := g.most(comm); n > most {
			g.err = fmt.Errorf("rank %d believes that %s is at %d, no member is further than %d", r.id, comm, n, most)
		}
	}
}

func (g *guard) end(r *modelRank, e Epoch) {
	key := fmt.Sprint(r.id, e)
	if g.ended[key] {
		g.err = fmt.Errorf("epoch %d ended twice on rank %d", e, r.id)
	}
	g.ended[key] = true
}

func (g *guard) most(comm string) uint64 {
	most := uint64(0)
	for _, id := range g.w.comms[comm] {
		most = max(most, g.w.ranks[id].entered[comm])
	}
	return most
}
