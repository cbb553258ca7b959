package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
)

// The clocks of nodes differ. A stage is something that ends on no rank before it
// has begun on all: a vote, the parking before a cut. If it begins on node B at
// b (B's clock) and ends on the reference node A at a (A's clock), B's clock is
// ahead by at least b-a; and at most by what the same says the other way round.
// All stages together leave an interval. If zero lies in it, nothing shows that
// the clocks differ and nothing is changed.

// stage is when a stage began last and ended first on one node, in nanoseconds
// of its clock.
type stage struct{ begin, end int64 }

// stages collects those of one node in one run.
type stages map[string]stage

func (s stages) add(key string, begin, end int64) {
	old, ok := s[key]
	if !ok {
		s[key] = stage{begin, end}
		return
	}
	s[key] = stage{max(old.begin, begin), min(old.end, end)}
}

// stageKey names the stage that an event ends; "" if it is none.
func stageKey(e *events.Event) string {
	if e.Begin || e.Text != "" {
		return ""
	}
	switch e.Name {
	case events.Sync:
		return "sync " + e.What
	case events.Vote:
		return fmt.Sprintf("vote %d %s %s", e.Epoch, e.Level, e.What)
	case events.Park:
		return fmt.Sprintf("cut %d", e.Epoch)
	}
	return ""
}

// offset compares node b with the reference a.
func offset(a, b stages) (c Clock) {
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	for key, sa := range a {
		sb, ok := b[key]
		if !ok {
			continue
		}
		c.Events++
		low, high = max(low, sb.begin-sa.end), min(high, sb.end-sa.begin)
	}
	if c.Events == 0 {
		return c
	}
	c.Low, c.High = seconds(low), seconds(high)
	c.Drifts = low > high
	if c.Drifts || low > 0 || high < 0 {
		c.Offset = (c.Low + c.High) / 2
	}
	return c
}

// clocks finds the offsets of all nodes in all runs.
func clocks(logs []events.RankLog) map[int]map[string]Clock {
	byNode := map[int]map[string]stages{}
	reference := map[int]string{}
	for i := range logs {
		l := &logs[i]
		run, node := l.Header.Run, l.Header.Node
		if byNode[run] == nil {
			byNode[run] = map[string]stages{}
		}
		if byNode[run][node] == nil {
			byNode[run][node] = stages{}
		}
		if _, ok := reference[run]; !ok || l.Rank == 0 {
			reference[run] = node
		}
		zero := wallZero(l)
		for j := range l.Events {
			e := &l.Events[j]
			if key := stageKey(e); key != "" {
				byNode[run][node].add(key, zero+e.Mono-e.Dur, zero+e.Mono)
			}
		}
	}
	out := map[int]map[string]Clock{}
	for run, nodes := range byNode {
		out[run] = map[string]Clock{}
		for node, s := range nodes {
			c := Clock{reference: true}
			if node != reference[run] {
				c = offset(nodes[reference[run]], s)
			}
			c.Run, c.Node = run, node
			out[run][node] = c
		}
	}
	return out
}

// chain brings the clocks of later runs to that of the first. A node that an earlier
// run had as well tells how far apart the reference clocks of the two are; where
// none does, and by its clocks a run would begin before the one before it ended, it
// is moved behind that.
func (m *merger) chain() {
	m.bases = map[int]int64{}
	known := map[string]int64{} // by node: how far its clock was ahead of the first run's reference
	ended := int64(math.MinInt64)
	for first := 0; first < len(m.logs); {
		run, next := m.logs[first].Header.Run, first
		for next < len(m.logs) && m.logs[next].Header.Run == run {
			next++
		}
		logs := m.logs[first:next]
		m.bases[run] = m.base(run, known)
		begins, ends := m.span(logs)
		if first > 0 && begins < ended {
			m.note("start %d: by its clock it began %s before the previous start ended; the report shows it "+
				"after that end", run, durText(seconds(ended-begins)))
			m.bases[run] -= ended - begins
			_, ends = m.span(logs)
		}
		for node, c := range m.offsets[run] {
			if c.reference || c.Events > 0 && !c.Drifts {
				known[node] = m.bases[run] + int64(c.Offset*1e9)
			}
		}
		ended, first = ends, next
	}
}

// base is how far a run's reference clock was ahead of the first run's, as the
// node shows that knows best: the reference itself, or that with the most events
// in common with it.
func (m *merger) base(run int, known map[string]int64) int64 {
	base, most := int64(0), 0
	for _, node := range slices.Sorted(maps.Keys(m.offsets[run])) {
		c := m.offsets[run][node]
		was, ok := known[node]
		switch {
		case ok && c.reference:
			return was
		case ok && !c.Drifts && c.Events > most:
			base, most = was-int64(c.Offset*1e9), c.Events
		}
	}
	if most > 0 && base != 0 {
		side := "ahead of"
		if base < 0 {
			side = "behind"
		}
		m.note("start %d: the clock of rank 0's node is %s %s that of the first start, judged by nodes that took part "+
			"in both; that was subtracted from its times", run, durText(seconds(abs(base))), side)
	}
	return base
}

// span is when a run began and when half of its ranks had ended; the others may
// have been cut off and not have noticed.
func (m *merger) span(logs []events.RankLog) (begins, ended int64) {
	begins = math.MaxInt64
	var last []int64
	for i := range logs {
		l := &logs[i]
		begins = min(begins, m.wall(l)+l.Events[0].Mono)
		last = append(last, m.wall(l)+l.Events[len(l.Events)-1].Mono)
	}
	slices.Sort(last)
	return begins, last[len(last)/2]
}

// wallZero is the wall time at which a log's monotonic clock was zero.
func wallZero(l *events.RankLog) int64 { return l.Events[0].Wall - l.Events[0].Mono }

// clockSet is how far the wall clock was set while the process ran, in seconds.
// A few milliseconds are how clocks are kept right.
func clockSet(l *events.RankLog) float64 {
	zero, most := wallZero(l), int64(0)
	for i := range l.Events {
		d := l.Events[i].Wall - l.Events[i].Mono - zero
		if abs(d) > abs(most) {
			most = d
		}
	}
	const least = 50e6
	if abs(most) < least {
		return 0
	}
	return seconds(most)
}

func abs(n int64) int64 { return max(n, -n) }

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

func sortClocks(all map[int]map[string]Clock) []Clock {
	out := []Clock{}
	for _, nodes := range all {
		for _, c := range nodes {
			if !c.reference || c.SetBy != 0 {
				out = append(out, c)
			}
		}
	}
	slices.SortFunc(out, func(a, b Clock) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(a.Node, b.Node))
	})
	return out
}
