package coordinated

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
)

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
		{"another daemon's", &statistics{restoreSkipped: true}, true},
	} {
		c := &Checkpointer{topo: &connect.Topology{Nodes: []string{"n0", "n1"}}}
		c.stats.s, c.stats.restoreSkipped = tc.stats.s, tc.stats.restoreSkipped
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
