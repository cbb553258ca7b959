package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
)

// The clocks of nodes differ. A stage is something that ends on no rank before it has begun on all: a vote, the parking
// before a cut. If it begins on node B at b (B's clock) and ends on the reference node A at a (A's clock), B's clock is
// ahead by at least b-a. The same in the other direction gives the upper bound. All stages together leave an interval.
// If zero lies in it, nothing shows that the clocks differ and nothing is changed.

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

// offset compares node b with the reference a; false if they have no stage in common.
func offset(a, b stages) (c Clock, common bool) {
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	for key, sa := range a {
		if sb, ok := b[key]; ok {
			common = true
			low, high = max(low, sb.begin-sa.end), min(high, sb.end-sa.begin)
		}
	}
	c.Low, c.High = seconds(low), seconds(high)
	if low > high || low > 0 || high < 0 {
		c.Offset = (c.Low + c.High) / 2
	}
	return c, common
}

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
			if c, common := offset(nodes[reference[run]], s); common && node != reference[run] {
				c.Run, c.Node = run, node
				out[run][node] = c
			}
		}
	}
	return out
}

// chain moves a start that by its clock began before the one before it ended behind that.
func (m *merger) chain() {
	m.bases = map[int]int64{}
	ended := int64(math.MinInt64)
	for first := 0; first < len(m.logs); {
		run, next := m.logs[first].Header.Run, first
		for next < len(m.logs) && m.logs[next].Header.Run == run {
			next++
		}
		logs := m.logs[first:next]
		begins, ends := m.span(logs)
		if first > 0 && begins < ended {
			m.note("start %d: by its clock it began %s before the previous start ended; the report shows it "+
				"after that end", run, durText(seconds(ended-begins)))
			m.bases[run] = begins - ended
			_, ends = m.span(logs)
		}
		ended, first = ends, next
	}
}

// span returns when a run began and when half of its ranks had ended; the others may
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

// wallZero returns the wall time at which a log's monotonic clock was zero.
func wallZero(l *events.RankLog) int64 { return l.Events[0].Wall - l.Events[0].Mono }

func seconds(ns int64) float64 { return float64(ns) / 1e9 }
