package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
)

type sample struct {
	rank int
	v    float64
}

// gathered has the ranks' times for one step.
type gathered []sample

func (g gathered) times() RankTimes {
	if len(g) == 0 {
		return RankTimes{}
	}
	s := RankTimes{Min: g[0].v, Max: g[0].v, Slowest: g[0].rank, Ranks: len(g)}
	var vs []float64
	for _, x := range g {
		vs = append(vs, x.v)
		s.Min = min(s.Min, x.v)
		if x.v > s.Max {
			s.Max, s.Slowest = x.v, x.rank
		}
	}
	slices.Sort(vs)
	n := len(vs)
	s.Median = (vs[(n-1)/2] + vs[n/2]) / 2
	return s
}

// epochKey tells epochs apart: a run may repair one of an earlier run.
type epochKey struct {
	run   int
	epoch uint64
}

func (m *merger) epochs() {
	list := map[epochKey]*Epoch{}
	for i := range m.logs {
		l := &m.logs[i]
		zero := m.wall(l) - m.start
		for j := range l.Events {
			e := &l.Events[j]
			if e.Epoch == 0 || e.Begin || e.Name == events.Restore {
				continue
			}
			key := epochKey{l.Header.Run, e.Epoch}
			q := list[key]
			if q == nil && e.Name != events.Arm && e.Name != events.Park {
				continue // of an earlier run
			}
			if q == nil {
				q = &Epoch{Run: key.run, Epoch: key.epoch, Begin: (zero + e.Mono - e.Dur) / 1000, ByRank: -1,
					LastIn: -1,
					Flush:  map[string]RankTimes{}, Durable: map[string]float64{}, Stored: map[string]int64{},
					ranks: map[int]bool{},
					seen:  map[string]gathered{}, written: map[string]int64{}, committed: map[string]int{}}
				list[key] = q
			}
			q.add(l.Rank, e, (zero+e.Mono)/1000)
		}
	}
	for _, q := range list {
		if q.putOff && q.Fault == "" {
			continue // there is none of this number: the request is that of the next
		}
		m.r.Epochs = append(m.r.Epochs, *q)
	}
	slices.SortFunc(m.r.Epochs, func(a, b Epoch) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(a.Epoch, b.Epoch))
	})
	for i := range m.r.Epochs {
		m.summarize(&m.r.Epochs[i])
	}
	m.assign()
}

func (q *Epoch) sample(what string, rank int, ns int64) {
	q.seen[what] = append(q.seen[what], sample{rank, seconds(ns)})
}

// add takes in one event; at is when it ended.
func (q *Epoch) add(rank int, e *events.Event, at int64) {
	q.Over = max(q.Over, at)
	switch e.Name {
	case events.Arm:
		q.Begin = min(q.Begin, at)
	case events.Park:
		q.sample("park", rank, e.Dur)
		q.sample("arrival", rank, 1000*at-e.Dur)
		q.Cut = max(q.Cut, at)
		q.Stop = q.Stop || e.Stop
		q.Rounds = max(q.Rounds, e.Rounds)
		q.Releases += e.Releases
	case events.Drain:
		q.sample("drain", rank, e.Dur)
		q.Messages += e.Messages
	case events.Capture:
		q.sample("capture", rank, e.Dur)
		q.Bytes += e.Bytes
		q.ranks[rank] = true
	case events.Resume:
		q.sample("blocked", rank, e.Dur)
	case events.Write:
		q.sample("write", rank, e.Dur)
		q.store(e)
	case events.Redundancy, events.Flush:
		q.sample("to "+e.Level, rank, e.Dur)
		q.Flush[e.Level] = RankTimes{}
		q.store(e)
	case events.Vote:
		q.sample("vote "+e.Level+" "+e.What, rank, e.Dur)
	case events.Commit:
		q.Durable[e.Level] = max(q.Durable[e.Level], seconds(e.Dur))
		q.committed[e.Level]++
	case events.PutOff:
		q.putOff = true
	case events.GiveUp, events.Failure:
		q.Fault = cmp.Or(q.Fault, e.Text)
	}
}

func (q *Epoch) store(e *events.Event) {
	if e.Text == "" {
		q.Stored[e.Level] += e.Stored
		q.written[e.Level] += e.Bytes
	}
}

func (m *merger) summarize(q *Epoch) {
	q.Park, q.Drain, q.Capture = q.seen["park"].times(), q.seen["drain"].times(), q.seen["capture"].times()
	for level, n := range q.written {
		if n > q.Bytes && q.Bytes > 0 { // some parts were written twice: one rank could not write its own
			q.Stored[level] = int64(float64(q.Stored[level]) * float64(q.Bytes) / float64(n))
		}
	}
	q.Blocked, q.Write = q.seen["blocked"].times(), q.seen["write"].times()
	for level := range q.Flush {
		q.Flush[level] = q.seen["to "+level].times()
	}
	if a := q.seen["arrival"].times(); a.Ranks > 0 && q.Park.Max > q.Park.Min {
		q.LastIn = a.Slowest
	}
	// The others wait for the slowest writer as well; the last voter waits for the
	// vote alone.
	for what, g := range q.seen {
		if strings.HasPrefix(what, "vote ") {
			q.Vote += g.times().Min
		}
	}
	if q.Cut > 0 {
		q.ToCut = float64(q.Cut-q.Begin) / 1e6
	}
	if len(q.Durable) == 0 && q.Fault == "" && !m.alive(q.Run) {
		q.Fault = "the run ended before it was committed"
	}
}

// alive reports whether a run may still be going on.
func (m *merger) alive(run int) bool {
	last := m.logs[len(m.logs)-1].Header
	for _, t := range m.trackers {
		if t.l.run == run && !t.l.closed && t.l.why == "" && run == last.Run &&
			m.r.made.UnixNano()/1000-m.start/1000-t.l.last < 3*max(t.l.alive, 1e6) {
			return true
		}
	}
	return false
}

// assign finds the request for each epoch: the first request since the epoch before.
func (m *merger) assign() {
	used := make([]bool, len(m.requests))
	for i := range m.r.Epochs {
		q := &m.r.Epochs[i]
		until := cmp.Or(q.Cut, q.Over)
		more := 0
		for j, k := range m.requests {
			if used[j] || k.run != q.Run || k.at > until {
				continue
			}
			used[j] = true
			if q.ByRank >= 0 {
				more++
				continue
			}
			q.By, q.ByRank, q.Begin = k.text, k.rank, min(q.Begin, k.at)
			if q.Cut > 0 {
				q.ToCut = float64(q.Cut-q.Begin) / 1e6
			}
		}
		if more > 0 {
			q.By += fmt.Sprintf(" (and %d more)", more)
		}
	}
}
