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

// statements has the tests and scenarios of each numbered statement of docs/PROTOCOL.md, in order.
var statements = []string{
	"start requests-merge",                  // S1
	"start single-rank",                     // S2
	"r0-within-span",                        // S3
	"r0-beyond-span",                        // S4
	"r0-arrives-before-hint",                // S5
	"r0-finished-has-no-say finished-ranks", // S6
	"r1-inside r1-root-left-early r1-nested-communicators", // S7
	"r1-nonblocking-counted-when-started",                  // S8
	"r1-stays-in-subtree r1-uneven-below r1-news-gathers",  // S9
	"r1-young-communicator r1-half-created",                // S10
	"r1-raise-between-answer-and-hint",                     // S11
	"r1-freed-communicator",                                // S12
	"r2-mailbox-counts",                                    // S13
	"r2-nothing-in-flight r2-need-before-hint",             // S14
	"r2-in-flight-helps r2-other-tag-in-flight",            // S15
	"r2-retracted",                  // S16
	"r2-waitany r2-waitall-in-part", // S17
	"r2-anysource-fewest-points r2-anysource-subcommunicator",            // S18
	"r2-anysource-in-flight",                                             // S19
	"r2-anysource-computing r2-anysource-nobody-parked",                  // S20
	"r2-anysource-again-and-again",                                       // S21
	"r2-poll",                                                            // S22
	"r2-blocked-send",                                                    // S23
	"freeze-vote-no r2-need-while-frozen",                                // S24
	"freeze-fingerprint TestFingerprint",                                 // S25
	"requests-merge",                                                     // S26
	"final-is-last request-during-commit",                                // S27
	"give-up-and-retry request-after-a-quiet-hour arrives-after-give-up", // S28
	"park-while-capturing given-up-while-capturing TestManyEpochs",       // S29
	"TestNoisyControl TestLossyControl duplicates late-messages lost-give-up reordered-freeze reordered-ready", // S30
	"finished-freed TestFreedThenClosed",             // S31
	"TestWindowAtCut TestWindowLockedAtCut",          // S32
	"TestPollAndCompute TestPollersPark TestPolling", // S33
	"TestStuckRanks TestStuck TestStuckInRestore",    // S34
	"TestWaitsForOneThatComputes",                    // S35
	"TestOpenBySome TestOpenLate",                    // S36
}

// TestStatements: docs/PROTOCOL.md makes each statement, and no other. Its tests and scenarios exist, and no scenario
// is left over.
func TestStatements(t *testing.T) {
	text := protocolText(t)
	have := testsAndScenarios(t)
	made := map[string]bool{}
	for _, s := range regexp.MustCompile(`\bS\d+\b`).FindAllString(text, -1) {
		made[s] = true
	}
	for i, names := range statements {
		s := fmt.Sprintf("S%d", i+1)
		if !regexp.MustCompile(s + `\b`).MatchString(text[strings.Index(text, "## 4."):]) {
			t.Errorf("the text does not make %s", s)
		}
		for _, n := range strings.Fields(names) {
			if _, ok := have[n]; !ok {
				t.Errorf("%s names %s, which does not exist", s, n)
			}
			have[n] = true
		}
	}
	if len(made) != len(statements) {
		t.Errorf("the text has %d statements, want %d", len(made), len(statements))
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
