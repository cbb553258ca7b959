package report

import (
	"maps"
	"math"
	"slices"
)

// lost finds out which work the newest run does not have. It goes back from there: a run that restored an epoch has the
// work up to its cut, and nothing of later work or of the runs between. Runs that did not come so far as to restore, or
// not yet, say nothing: the one before them counts.
func (m *merger) lost() {
	r := m.r
	kept := map[int]int64{} // by run: until when computing is kept
	newest := m.began(len(r.Runs) - 1)
	until := int64(math.MaxInt64)
	if newest >= 0 && r.Runs[newest].Ended == "killed" {
		// Work after its newest epoch will have to be done again.
		until = m.newestCut(r.Runs[newest].Number, math.MaxUint64)
	}
	for at := newest; at >= 0; {
		run := &r.Runs[at]
		kept[run.Number] = until
		switch {
		case run.Restored > 0:
			at, until = m.cutOf(run.Restored, at)
		case run.truncated:
			m.note("start %d: its log has lost its beginning, so what it restored is unknown; the report "+
				"assumes the newest checkpoint before it", run.Number)
			if at = m.began(at - 1); at >= 0 {
				until = m.newestCut(r.Runs[at].Number, math.MaxUint64)
			}
		default: // from the start
			at = -1
		}
	}
	for i := range r.Runs {
		run := &r.Runs[i]
		n := 0.0
		for j := range r.tracks {
			if l := &r.tracks[j]; l.run == run.Number {
				run.Noticed += l.turnInto(noticing, run.death)
				run.Lost += l.turnInto(lost, kept[run.Number])
				n++
			}
		}
		run.Noticed, run.Lost = run.Noticed/max(n, 1), run.Lost/max(n, 1)
	}
}

// began returns the newest of the runs up to r.Runs[at] that came so far as to
// compute; -1 if there is none.
func (m *merger) began(at int) int {
	for at >= 0 && !m.r.Runs[at].began {
		at--
	}
	return at
}

// newestCut returns when the newest committed epoch of a run up to a number was cut, 0
// if it has none.
func (m *merger) newestCut(run int, most uint64) int64 {
	var at int64
	for _, q := range m.r.Epochs {
		if q.Run == run && len(q.Durable) > 0 && q.Epoch <= most {
			at = max(at, q.Cut)
		}
	}
	return at
}

// cutOf finds the run before r.Runs[before] that made an epoch, and when it was
// cut. If the logs of that run are gone it is the newest before it that is left,
// of which it is not known how much more was kept than its newest epoch; -1 if
// there is none.
func (m *merger) cutOf(epoch uint64, before int) (run int, at int64) {
	for _, committed := range []bool{true, false} {
		for i := before - 1; i >= 0; i-- {
			for j := range m.r.Epochs {
				q := &m.r.Epochs[j]
				if q.Run != m.r.Runs[i].Number || q.Epoch != epoch || q.Cut == 0 || (len(q.Durable) > 0) != committed {
					continue
				}
				if !committed { // the run died before it could say so
					q.Completed, q.Fault = m.r.Runs[before].Number, ""
					m.r.Runs[i].Epochs++
				}
				return i, q.Cut
			}
		}
	}
	if run = m.began(before - 1); run < 0 {
		return -1, 0
	}
	m.note("start %d restored epoch %d, but the logs of the start that made it are not here: the lost work before it "+
		"is incomplete", m.r.Runs[before].Number, epoch)
	return run, m.newestCut(m.r.Runs[run].Number, epoch)
}

// turnInto reports that computing after a time was something else, and for how many
// seconds.
func (l *track) turnInto(k kind, after int64) float64 {
	var us int64
	var main []stretch
	for _, s := range l.main {
		if s.kind == computing && s.to > after {
			if s.from < after {
				before := s
				before.to, s.from = after, after
				main = append(main, before)
			}
			s.kind = k
			us += s.to - s.from
		}
		main = append(main, s)
	}
	l.main = main
	return float64(us) / 1e6
}

func (m *merger) totals() {
	r := m.r
	t := &r.Totals
	for i := range r.Runs {
		run := &r.Runs[i]
		t.Dead += run.Dead
		t.Lost += run.Lost
		n := 0.0
		var sum Totals
		for j := range r.tracks {
			if l := &r.tracks[j]; l.run == run.Number {
				sum.add(l, run)
				n++
			}
		}
		t.Computing += sum.Computing / n
		t.Noticing += sum.Noticing / n
		t.Stopped += sum.Stopped / n
		t.Starting += sum.Starting / n
		t.Ending += sum.Ending / n
	}
	if work := t.Computing; work > 0 {
		t.Overhead = t.Stopped / work
	}
	t.Computing -= t.Lost
	t.Wall = t.Computing + t.Lost + t.Noticing + t.Stopped + t.Starting + t.Ending + t.Dead
	for _, q := range r.Epochs {
		if len(q.Durable) > 0 || q.Completed > 0 {
			t.Committed++
		} else if q.Fault != "" {
			t.Failed++
		}
	}
	m.rankSums()
}

func (t *Totals) add(l *track, run *Run) {
	s := l.seconds()
	t.Computing += s[computing] + s[lost]
	t.Noticing += s[noticing]
	t.Starting += s[starting] + s[restoring] + float64(l.first-run.Begin)/1e6
	t.Ending += s[ending] + float64(run.End-l.last)/1e6
	t.Stopped += s.stopped()
}

// spent is how many seconds the tracks of a rank spent on each kind.
type spent [kinds]float64

func (l *track) seconds() (s spent) {
	for _, list := range [][]stretch{l.main, l.behind} {
		for _, x := range list {
			s[x.kind] += float64(x.to-x.from) / 1e6
		}
	}
	return s
}

func (s *spent) stopped() float64 {
	return s[parked] + s[draining] + s[capturing] + s[held] + s[stopping]
}

func (m *merger) rankSums() {
	sums := map[int]*RankSums{}
	for i := range m.r.tracks {
		l := &m.r.tracks[i]
		s := sums[l.rank]
		if s == nil {
			s = &RankSums{Rank: l.rank}
			sums[l.rank] = s
		}
		s.Node = l.node // of the newest run
		s.take(l)
	}
	for _, q := range m.r.Epochs {
		if s := sums[q.LastIn]; s != nil {
			s.LastIn++
		}
		for _, x := range q.seen["blocked"] {
			if s := sums[x.rank]; s != nil {
				s.Longest = max(s.Longest, x.v)
			}
		}
	}
	for _, rank := range slices.Sorted(maps.Keys(sums)) {
		m.r.Ranks = append(m.r.Ranks, *sums[rank])
	}
}

func (s *RankSums) take(l *track) {
	t := l.seconds()
	s.Computing += t[computing] + t[lost]
	s.Starting += t[starting] + t[restoring]
	s.Stopped += t.stopped()
	s.Writing += t[writing] + t[redundancy] + t[flushing]
	for _, x := range l.main {
		if x.kind == capturing {
			s.Bytes += x.bytes
		}
	}
}
