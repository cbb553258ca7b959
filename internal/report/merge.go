package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// Load reads the event logs in the directories of a job: its global one, or the
// local ones of all its nodes; only those of the newest starts, 0 for all.
// now is when a run that gives no sign of life any more counts as dead.
func Load(now time.Time, starts int, dirs ...string) (*Report, error) {
	var logs []events.RankLog
	var notes []string
	var empty error
	ctx := vfs.With(context.Background(), vfs.OS{AllowForeign: true}) // a report is of any user
	for _, d := range dirs {
		more, problems, err := events.ReadDir(ctx, d, starts)
		if none := (*events.NoLogError)(nil); errors.As(err, &none) {
			empty = err // a node that came back with an empty disk
			notes = append(notes, d+" has no event logs")
			continue
		}
		if err != nil {
			return nil, err
		}
		logs = append(logs, more...)
		for _, p := range problems {
			notes = append(notes, p.Error())
		}
	}
	if len(logs) == 0 && empty != nil {
		return nil, empty
	}
	if starts > 0 {
		newest := 0
		for _, l := range logs {
			newest = max(newest, l.Header.Run)
		}
		logs = slices.DeleteFunc(logs, func(l events.RankLog) bool { return l.Header.Run <= newest-starts })
		if newest > starts {
			notes = append(notes, fmt.Sprintf("starts before number %d were left out", newest-starts+1))
		}
	}
	return mergeLogs(now, logs, notes)
}

type jobsError struct{ A, B string }

func (e *jobsError) Error() string {
	return fmt.Sprintf("the logs are of two jobs, %s and %s; give the directories of one", e.A, e.B)
}

// mergeLogs makes the account of logs, in any order.
func mergeLogs(now time.Time, logs []events.RankLog, notes []string) (*Report, error) {
	if len(logs) == 0 {
		return nil, noLogs(notes)
	}
	m := &merger{r: &Report{Notes: append([]string{}, notes...), Epochs: []Epoch{}, Faults: []Fault{}, made: now},
		logs: logs}
	for i := range logs {
		if a, b := logs[0].Header.Job, logs[i].Header.Job; a != b {
			return nil, &jobsError{a, b}
		}
	}
	m.dedupe()
	m.clocks()
	m.follow()
	m.epochs()
	m.runs()
	m.lost()
	m.totals()
	m.describe()
	return m.r, nil
}

func noLogs(notes []string) error {
	const most = 3
	why := strings.Join(notes[:min(most, len(notes))], "; ")
	switch more := len(notes) - most; {
	case len(notes) == 0:
		why = "the directories of the starts are empty"
	case more > 0:
		why += fmt.Sprintf("; and %d more", more)
	}
	return fmt.Errorf("no event log could be read: %s", why)
}

type merger struct {
	r        *Report
	logs     []events.RankLog
	offsets  map[int]map[string]Clock
	bases    map[int]int64 // ns, by run: that it is moved back, behind the run before
	start    int64         // ns, corrected, of time zero
	trackers []*tracker
	requests []instant
}

// dedupe sorts the logs by start and rank and drops a log that was given twice, and the older
// ones of starts that have one number, as when a job started over on other nodes.
func (m *merger) dedupe() {
	slices.SortStableFunc(m.logs, func(a, b events.RankLog) int {
		return cmp.Or(cmp.Compare(a.Header.Run, b.Header.Run), cmp.Compare(a.Rank, b.Rank),
			cmp.Compare(b.Events[0].Wall, a.Events[0].Wall))
	})
	twice, others := 0, map[int]bool{}
	m.logs = slices.CompactFunc(m.logs, func(a, b events.RankLog) bool {
		same := a.Header.Run == b.Header.Run && a.Rank == b.Rank
		switch {
		case same && a.Header.PID == b.Header.PID && a.Events[0].Wall == b.Events[0].Wall:
			twice++
		case same:
			others[a.Header.Run] = true
		}
		return same
	})
	if twice > 0 {
		m.note("%d log(s) were given twice and are counted once", twice)
	}
	for _, run := range slices.Sorted(maps.Keys(others)) {
		m.note("there are logs of two starts with number %d, as when the job started over on other nodes: the newer "+
			"is shown; give the directories of one to see it alone", run)
	}
}

func (m *merger) note(format string, args ...any) {
	m.r.Notes = append(m.r.Notes, fmt.Sprintf(format, args...))
}

func (m *merger) clocks() {
	m.offsets = clocks(m.logs)
	m.chain()
	for i := range m.logs {
		if at := m.wall(&m.logs[i]); i == 0 || at < m.start {
			m.start = at
		}
	}
	m.r.Clocks = []Clock{}
	for _, run := range slices.Sorted(maps.Keys(m.offsets)) {
		for _, node := range slices.Sorted(maps.Keys(m.offsets[run])) {
			m.r.Clocks = append(m.r.Clocks, m.offsets[run][node])
		}
	}
	m.r.Start = time.Unix(0, m.start).UTC()
}

// wall returns the corrected wall time of a log's beginning, in ns.
func (m *merger) wall(l *events.RankLog) int64 {
	return wallZero(l) - int64(m.offsets[l.Header.Run][l.Header.Node].Offset*1e9) - m.bases[l.Header.Run]
}

func (m *merger) follow() {
	for i := range m.logs {
		l := &m.logs[i]
		zero := m.wall(l) - m.start
		usec := func(mono int64) int64 { return (zero + mono) / 1000 }
		m.trackers = append(m.trackers, follow(l, usec))
		for j := range l.Events {
			m.notable(l, &l.Events[j], usec(l.Events[j].Mono))
		}
	}
	slices.SortStableFunc(m.requests, func(a, b instant) int { return cmp.Compare(a.at, b.at) })
}

func (m *merger) notable(l *events.RankLog, e *events.Event, at int64) {
	k := instant{run: l.Header.Run, rank: l.Rank, at: at, what: e.Name, epoch: e.Epoch}
	switch e.Name {
	case events.Request:
		k.text = e.What
		m.requests = append(m.requests, k)
	case events.Commit:
		if l.Rank != 0 {
			return
		}
		k.text = e.Level
	case events.GiveUp:
		k.text = e.Text
		m.fault(l, e, at, "cut given up")
	case events.Failure:
		k.text = e.What + ": " + e.Text
		m.fault(l, e, at, e.What)
	default:
		return
	}
	m.r.instants = append(m.r.instants, k)
}

// fault notes an error once for all ranks that report it.
func (m *merger) fault(l *events.RankLog, e *events.Event, at int64, what string) {
	for i := range m.r.Faults {
		f := &m.r.Faults[i]
		if f.Run == l.Header.Run && f.What == what && f.Epoch == e.Epoch {
			f.At = min(f.At, at)
			f.Ranks++
			return
		}
	}
	m.r.Faults = append(m.r.Faults, Fault{Run: l.Header.Run, At: at, Rank: l.Rank, Epoch: e.Epoch, What: what,
		Text: e.Text, Ranks: 1})
}

func (m *merger) runs() {
	byRun := map[int][]*tracker{}
	for _, t := range m.trackers {
		byRun[t.l.run] = append(byRun[t.l.run], t)
	}
	for _, number := range slices.Sorted(maps.Keys(byRun)) {
		run := Run{Number: number, Begin: byRun[number][0].l.first, Logs: len(byRun[number]),
			Size: byRun[number][0].l.size, death: math.MaxInt64}
		for _, t := range byRun[number] {
			run.Begin, run.End = min(run.Begin, t.l.first), max(run.End, t.l.last)
			if t.l.lost != nil {
				run.death = min(run.death, t.l.death)
			}
			run.Points = max(run.Points, t.l.points*uint64(b2i(t.l.rank == 0)))
		}
		m.restart(&run)
		m.ending(&run, byRun[number])
		for i := range m.r.Epochs {
			if e := &m.r.Epochs[i]; e.Run == number && len(e.Durable) > 0 {
				run.Epochs++
			}
		}
		if n := len(m.r.Runs); n > 0 {
			run.Dead = max(0, float64(run.Begin-m.r.Runs[n-1].End)/1e6)
		}
		m.r.Runs = append(m.r.Runs, run)
	}
	for _, t := range m.trackers {
		for _, r := range m.r.Runs {
			if r.Number == t.l.run {
				t.finish(r.End)
			}
		}
		m.r.tracks = append(m.r.tracks, *t.l)
	}
}

func (m *merger) restart(run *Run) {
	gone := false
	for i := range m.logs {
		l := &m.logs[i]
		if l.Header.Run != run.Number {
			continue
		}
		gone = gone || l.Truncated
		for _, e := range l.Events {
			if e.Name == events.Open && !e.Begin && l.Rank == 0 {
				run.Taken = e.What
			}
			if e.Name == events.Restore && !e.Begin && e.Text == "" {
				run.Restored, run.began = e.Epoch, true
				run.Startup = max(run.Startup, seconds(e.Mono))
				if e.Epoch != 0 && seconds(e.Dur) > run.Restore {
					run.Restore, run.Level = seconds(e.Dur), e.Level
				}
			}
		}
	}
	run.truncated = gone && !run.began
	run.began = run.began || gone
}

func (m *merger) ending(run *Run, ts []*tracker) {
	var closed, stopped int
	alive := int64(0)
	for _, t := range ts {
		closed += b2i(t.l.closed)
		stopped += b2i(t.l.stopped)
		alive = max(alive, t.l.alive)
		if t.l.why != "" && (run.Why == "" || t.l.lost == nil) {
			run.Why = t.l.why
		}
	}
	now := m.r.made.UnixNano()/1000 - m.start/1000
	newest := run.Number == m.logs[len(m.logs)-1].Header.Run
	switch {
	case run.Why != "":
		run.Ended = "killed"
	case closed == len(ts) && stopped > 0:
		run.Ended = "stopped"
	case closed == len(ts):
		run.Ended = "closed"
		if !run.began {
			run.Why = "before it computed anything"
		}
	case newest && now-run.End < 3*max(alive, 1e6):
		run.Ended, m.r.Running = "running", true
	default:
		run.Within = float64(alive) / 1e6
		run.Ended, run.Why = "killed",
			fmt.Sprintf("%d of %d ranks ended without a closing line in their log; the end shown is the last sign "+
				"of life, at most %v before the real one",
				len(ts)-closed, len(ts), time.Duration(alive)*time.Microsecond)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (m *merger) describe() {
	r, last := m.r, m.logs[len(m.logs)-1].Header
	r.Job, r.Size, r.Program, r.Levels = last.Job, last.Size, last.Program, last.Levels
	nodes := map[int]string{}
	bad, lost, gone := 0, uint64(0), 0
	for i := range m.logs {
		l := &m.logs[i]
		if l.Header.Run == last.Run {
			nodes[l.Rank] = l.Header.Node
		}
		bad, lost, gone = bad+l.Bad, lost+l.Lost, gone+b2i(l.Truncated)
	}
	for _, rank := range slices.Sorted(maps.Keys(nodes)) {
		if !slices.Contains(r.Nodes, nodes[rank]) {
			r.Nodes = append(r.Nodes, nodes[rank])
		}
	}
	r.End = r.Start.Add(time.Duration(r.Runs[len(r.Runs)-1].End) * time.Microsecond)
	for i, run := range r.Runs {
		if i > 0 && run.Size != r.Runs[i-1].Size {
			m.note("start %d was on %d ranks, the one before on %d", run.Number, run.Size, r.Runs[i-1].Size)
		}
		if run.Logs < run.Size {
			m.note("start %d: %d of %d ranks have a log here; the other logs are in the directories of their "+
				"nodes, or lost with them", run.Number, run.Logs, run.Size)
		}
	}
	if bad > 0 {
		m.note("%d damaged line(s) were skipped", bad)
	}
	if lost > 0 {
		m.note("%d event(s) were not logged because the disk was too slow", lost)
	}
	if gone > 0 {
		m.note("%d log(s) reached their size limit; their older parts were deleted", gone)
	}
	if len(r.Runs) > 1 {
		m.note("the time between two starts is from the wall clocks of rank 0's nodes")
	}
}
