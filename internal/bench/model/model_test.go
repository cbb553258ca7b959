package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/bench"
)

// simulate runs a job through failures at random moments and returns the share of
// its time that was work. A checkpoint counts once it is durable, latency after the
// program went on; the newest durable one is gone back to.
func simulate(rng *rand.Rand, cost, latency, restart, mtbf, work float64) float64 {
	tau := math.Max(interval(cost, mtbf), latency)
	now, done, safe, pending, pendingAt := 0.0, 0.0, 0.0, -1.0, 0.0
	fail := rng.ExpFloat64() * mtbf
	crash := func() {
		if pending >= 0 && pendingAt <= fail {
			safe = pending
		}
		now, done, pending = fail, safe, -1
		for { // a failure during the restart starts it over
			next := rng.ExpFloat64() * mtbf
			if next >= restart {
				now += restart
				fail = now + next - restart
				return
			}
			now += next
		}
	}
	for done < work {
		if now+tau+cost > fail {
			crash()
			continue
		}
		now += tau + cost
		if pending >= 0 && pendingAt <= now {
			safe = pending
		}
		done += tau
		pending, pendingAt = done, now+latency
	}
	return work / now
}

// TestEfficiency compares the formula with simulated jobs, within what is left of
// chance, and within the bound that it is where checkpoints are durable late.
func TestEfficiency(t *testing.T) {
	for _, c := range []struct{ cost, latency, restart, mtbf float64 }{
		{0.05, 0, 60, 3600}, {30, 0, 90, 3600}, {60, 0, 120, 1800}, {0.05, 50, 60, 3600}, {300, 0, 300, 7200},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		got := simulate(rng, c.cost, c.latency, c.restart, c.mtbf, 8000*c.mtbf)
		want := efficiency(c.cost, c.latency, c.restart, c.mtbf)
		if c.latency == 0 && math.Abs(got-want) > 0.01 || got < want-0.01 || got > want+0.03 {
			t.Errorf("%+v: simulated %.4f, the formula gives %.4f", c, got, want)
		}
	}
}

// TestWays: the fewer nodes and the shorter the wait, the more of the time is work.
func TestWays(t *testing.T) {
	o := Options{NodeMTBF: 5 * 365 * 24 * time.Hour, State: 64e9, Disk: 2.4e9, Shared: 1e12, Link: 5e9,
		Blocked: 50 * time.Millisecond, Start: 30 * time.Second, Nodes: []int{1, 100, 10000}}
	r := &bench.Runner{}
	Run(r, &o)
	lines := r.Rows
	if len(lines) != 6 {
		t.Fatalf("got %d lines, want 6", len(lines))
	}
	for i, l := range lines {
		if l.Value <= 0 || l.Value > 1 || i%2 == 0 && *l.Ratio < 1 {
			t.Errorf("%s, %s: %v of the time, ratio %v", l.Case, l.Metric, l.Value, *l.Ratio)
		}
		if i >= 2 && l.Value > lines[i-2].Value {
			t.Errorf("%s: %v of the time, with fewer nodes %v", l.Case, l.Value, lines[i-2].Value)
		}
	}
	if got := fmt.Sprint(len(o.curves())); got != fmt.Sprint(len(ways)) {
		t.Errorf("got %s curves", got)
	}
	if got := efficiency(1000, 0, 1e6, 10); got != 0 {
		t.Errorf("a job that fails faster than it restarts: %v", got)
	}
}
