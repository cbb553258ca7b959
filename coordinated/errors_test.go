package coordinated

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
)

func TestTimeoutErrorNamesCycle(t *testing.T) {
	for _, c := range []struct {
		name     string
		culprits []Culprit
		cycle    []int
	}{
		{"none", []Culprit{{Rank: 1, State: "in Recv", WaitsFor: []int{0}}}, nil},
		{"two", []Culprit{{Rank: 1, WaitsFor: []int{3}}, {Rank: 3, WaitsFor: []int{1}}}, []int{1, 3}},
		{"three, entered from outside", []Culprit{{Rank: 0, WaitsFor: []int{5}}, {Rank: 2, WaitsFor: []int{4}},
			{Rank: 4, WaitsFor: []int{9, 5}}, {Rank: 5, WaitsFor: []int{2}}}, []int{2, 4, 5}},
		{"itself", []Culprit{{Rank: 7, WaitsFor: []int{7}}}, []int{7}},
	} {
		e := &TimeoutError{Epoch: 3, Culprits: c.culprits}
		if got := e.Cycle(); !slices.Equal(got, c.cycle) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.cycle)
		}
		if says := strings.Contains(e.Error(), "wait for each other"); says != (c.cycle != nil) {
			t.Errorf("%s: %v", c.name, e)
		}
	}
	closed := &TimeoutError{Culprits: []Culprit{{Rank: 1, State: "in Recv", WaitsFor: []int{0}}}, Closed: []int{0}}
	if !strings.Contains(closed.Error(), "rank 0 has called Close") {
		t.Errorf("got %v", closed)
	}
}

// TestLostInRestore: where ranks are in Restore, it is not said that the newest epoch
// comes next: it may be the one that they died of.
func TestLostInRestore(t *testing.T) {
	for _, in := range []bool{false, true} {
		e := &LostError{Rank: 1, Node: "n1", Observed: agent.Aborted(ErrClosed), InRestore: in}
		if got := strings.Contains(e.Error(), "newest committed epoch"); got == in {
			t.Errorf("in Restore %v: %v", in, e)
		}
	}
}

// TestLostWithoutEpoch: a restart is promised an epoch to continue from only where there may be one.
func TestLostWithoutEpoch(t *testing.T) {
	at := &statistics{}
	at.s.Epochs = []EpochStats{{Epoch: 1, Err: ErrClosed}}
	committed := &statistics{}
	committed.s.Epochs = []EpochStats{{Epoch: 1, Durable: map[string]time.Duration{"local": 1}}, {Epoch: 2,
		Err: ErrClosed}}
	restored := &statistics{}
	restored.s.Restore.Epoch = 7
	for _, tc := range []struct {
		name  string
		stats *statistics
		want  bool
	}{
		{"every epoch failed", at, false},
		{"one committed", committed, true},
		{"restored", restored, true},
		{"another daemon's", &statistics{goesOn: true}, true},
	} {
		c := &Checkpointer{topo: &connect.Topology{Nodes: []string{"n0", "n1"}}}
		c.stats.s, c.stats.goesOn = tc.stats.s, tc.stats.goesOn
		c.main.Restored.Store(true)
		e := c.lost(agent.Loss{Rank: 1, Observed: "it ended"})
		if got := strings.Contains(e.Error(), "continues from the newest committed epoch"); got != tc.want ||
			got == strings.Contains(e.Error(), "no epoch was committed") {
			t.Errorf("%s: %v", tc.name, e)
		}
	}
}

func TestNoCommon(t *testing.T) {
	var nc *NoCommonEpochError
	if err := noCommon([][]vote.Candidate{{{Epoch: 5}}, nil}, nil, nil); !errors.As(err, &nc) ||
		!strings.Contains(err.Error(), "rank(s) 1 find none") {
		t.Errorf("got %v", err)
	}
}
