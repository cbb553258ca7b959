package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
)

func merge(t *testing.T, w *world, age time.Duration) *Report {
	t.Helper()
	r, err := mergeLogs(worldStart.Add(w.now+age), w.logs, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func near(got, want, tolerance float64) bool { return math.Abs(got-want) <= tolerance }

// TestFullJob: the account of a job that was killed once, gave an epoch up, was
// stopped and finished.
func TestFullJob(t *testing.T) {
	w := fullJob(8, 2, 6)
	r := merge(t, w, time.Hour)
	if r.Job != "ocean" || r.Size != 8 || len(r.Nodes) != 4 || r.Running || len(r.Ranks) != 8 {
		t.Errorf("the job: got %s, %d ranks, nodes %v, running %v", r.Job, r.Size, r.Nodes, r.Running)
	}
	var ended []string
	for _, run := range r.Runs {
		ended = append(ended, run.Ended)
	}
	if got := strings.Join(ended, " "); got != "killed stopped closed" {
		t.Errorf("the runs ended: %s, want killed stopped closed", got)
	}
	// The first run computed 25 s after its last checkpoint, less what the writing
	// of the cut itself took; the second and third lost nothing.
	if got := r.Runs[0].Lost; !near(got, 25.4, 0.5) {
		t.Errorf("lost in start 1: got %.1f s, want about 25.4 s", got)
	}
	if r.Runs[1].Lost > 0.5 || r.Runs[2].Lost != 0 {
		t.Errorf("lost in starts 2 and 3: got %v and %v, want nothing", r.Runs[1].Lost, r.Runs[2].Lost)
	}
	if r.Runs[1].Restored != 6 || r.Runs[2].Restored != 8 || !near(r.Runs[1].Dead, 30, 1) ||
		!near(r.Runs[2].Dead, 45, 1) {
		t.Errorf("starts 2 and 3: got %+v", r.Runs[1:])
	}
	tot := r.Totals
	sum := tot.Computing + tot.Lost + tot.Noticing + tot.Stopped + tot.Starting + tot.Ending + tot.Dead
	if wall := r.End.Sub(r.Start).Seconds(); !near(sum, wall, 0.01) || !near(tot.Wall, wall, 0.01) {
		t.Errorf("the parts add up to %.3f s, the wall time is %.3f s", sum, wall)
	}
	if tot.Committed != 8 || tot.Failed != 1 || len(r.Epochs) != 9 {
		t.Errorf("epochs: got %d committed, %d failed of %d, want 8 and 1 of 9", tot.Committed, tot.Failed,
			len(r.Epochs))
	}
	q := r.Epochs[2]
	if q.Epoch != 3 || q.LastIn != 2 || q.By != "Daly's interval" || q.ByRank != 0 || !near(q.ToCut, 0.35, 0.01) ||
		q.Bytes != 8<<30 ||
		q.Stored["local"] != 8<<30 || q.Stored["global"] != (8<<30)/10*6 && q.Stored["global"] != 4*(2<<30*3/5) ||
		len(q.Durable) != 2 || q.Blocked.Ranks != 8 {
		t.Errorf("epoch 3: got %+v", q)
	}
	if f := r.Epochs[6]; f.Fault == "" || f.Cut != 0 || len(f.Durable) != 0 {
		t.Errorf("the epoch that was given up: got %+v", f)
	}
	if len(r.Faults) != 2 || r.Faults[0].What != "lost" || r.Faults[0].Ranks != 7 || r.Faults[1].Ranks != 8 {
		t.Errorf("faults: got %+v, want a lost rank that 7 name and an epoch given up that all name", r.Faults)
	}
	for _, l := range r.tracks {
		at := int64(math.MinInt64)
		for _, s := range l.main {
			if s.from < at || s.to < s.from {
				t.Fatalf("rank %d, start %d: stretches overlap at %+v", l.rank, l.run, s)
			}
			at = s.to
		}
	}
}

// TestClocks: the offsets of nodes are found from the events that they have in
// common, to within what these leave open.
func TestClocks(t *testing.T) {
	w := fullJob(8, 2, 6)
	for _, c := range merge(t, w, 0).Clocks {
		node := int(c.Node[len(c.Node)-1] - '0')
		want := (time.Duration(node%5) * 700 * time.Millisecond).Seconds()
		if c.Low > want || c.High < want || !near(c.Offset, want, 0.01) {
			t.Errorf("%s in start %d: got %.4f s in [%.4f, %.4f], want %.1f s", c.Node, c.Run, c.Offset, c.Low, c.High,
				want)
		}
	}
	// Clocks that agree are left alone.
	same := newWorld(4, 1)
	same.start(0)
	same.checkpoint("test", 1, false, true)
	same.end()
	for _, c := range merge(t, same, 0).Clocks {
		if c.Offset != 0 || c.Low > 0 || c.High < 0 {
			t.Errorf("%s: got %+v, want no offset", c.Node, c)
		}
	}
}

// TestKilledWhileWriting: what was never seen to end reaches to the end of the
// run, and the epoch did not come to be.
func TestKilledWhileWriting(t *testing.T) {
	w := newWorld(2, 2)
	w.start(0)
	w.compute(10 * time.Second)
	w.epoch++
	for r := range 2 {
		w.log(r, w.now, events.Event{Name: events.Arm, Epoch: 1})
		w.log(r, w.now+time.Second, events.Event{Name: events.Park, Epoch: 1, Dur: int64(time.Second)})
		w.log(r, w.now+2*time.Second, events.Event{Name: events.Capture, Epoch: 1, Dur: int64(time.Second), Bytes: 5})
		w.log(r, w.now+2*time.Second, events.Event{Name: events.Resume, Epoch: 1, Dur: int64(2 * time.Second)})
		w.log(r, w.now+2*time.Second, events.Event{Name: events.Write, Begin: true, Epoch: 1, Level: "local"})
	}
	w.compute(7 * time.Second)
	w.kill(0, false)
	r := merge(t, w, time.Hour)
	if run := r.Runs[0]; run.Ended != "killed" || run.Why == "" || !near(run.Lost, 17.4, 0.2) {
		t.Errorf("got %+v, want a killed run that lost all it computed", run)
	} else if run.Within <= 0 || !strings.Contains(run.lasted(), " to ") {
		t.Errorf("nobody saw the end: got within %v s, lasted %q, want a range", run.Within, run.lasted())
	}
	if r.Epochs[0].Fault == "" || r.Totals.Failed != 1 {
		t.Errorf("got %+v, want a fault", r.Epochs[0])
	}
	for _, l := range r.tracks {
		if len(l.behind) != 1 || !l.behind[0].open || l.behind[0].to != r.Runs[0].End {
			t.Errorf("rank %d: got %+v, want a write that was not seen to end", l.rank, l.behind)
		}
	}
	// The same logs a second after the last sign of life are of a job that runs.
	if again := merge(t, w, time.Second); again.Runs[0].Ended != "running" || !again.Running ||
		again.Epochs[0].Fault != "" {
		t.Errorf("just now: got %+v, %+v, want a running job", again.Runs[0], again.Epochs[0])
	}
}

// TestLineage: two deaths in a row from one epoch lose the work of both runs,
// each once.
func TestLineage(t *testing.T) {
	w := newWorld(1, 1)
	e := w.dieBehindEpoch()
	w.start(e)
	w.compute(70 * time.Second)
	w.kill(-1, false)
	w.start(e)
	w.compute(200 * time.Second)
	w.end()
	r := merge(t, w, time.Hour)
	if !near(r.Runs[0].Lost, 50, 1) || !near(r.Runs[1].Lost, 71, 2) || r.Runs[2].Lost != 0 {
		t.Errorf("lost: got %.1f, %.1f, %.1f s, want about 50, 71, 0", r.Runs[0].Lost, r.Runs[1].Lost, r.Runs[2].Lost)
	}
}

// TestStartsInVain: starts that end, or still are, before they have restored
// anything do not make the work of the job lost.
func TestStartsInVain(t *testing.T) {
	w := newWorld(2, 2)
	e := w.dieBehindEpoch()
	vain := func() {
		w.start(e)
		for r := range w.cur {
			w.cur[r].Events = w.cur[r].Events[:2] // open, sync
		}
		w.keep()
	}
	vain()
	restored := func(r *Report, run int) string { return r.Runs[run].restoredText() }
	for age, want := range map[time.Duration]string{-2 * time.Second: "not yet", time.Hour: "did not get that far"} {
		if r := merge(t, w, age); !near(r.Totals.Lost, 50, 1) || restored(r, 1) != want {
			t.Errorf("lost: got %.1f s, want about 50; restored: got %q, want %q", r.Totals.Lost, restored(r, 1), want)
		}
	}
	w.start(e) // one that cannot restore it, and ends in order
	for r := range w.cur {
		w.cur[r].Events[len(w.cur[r].Events)-1].Text = "restore epoch 1 failed on 2 rank(s)"
	}
	w.compute(5 * time.Second)
	w.end()
	var page bytes.Buffer
	if err := merge(t, w, time.Hour).WriteHTML(&page); err != nil ||
		!strings.Contains(page.String(), ">ended before computing<") {
		t.Errorf("%v, or the page calls a job finished that could not restore", err)
	}
	w.start(e)
	w.compute(20 * time.Second)
	w.end()
	r := merge(t, w, time.Hour)
	if !near(r.Totals.Lost, 50, 1) || restored(r, 3) != "epoch 1 from local" ||
		restored(r, 0) != "nothing" {
		t.Errorf("after a start that came through: got %.1f s lost, want about 50; restored %q", r.Totals.Lost,
			restored(r, 3))
	}
	if f := r.Runs[2]; f.Lost != 0 || restored(r, 2) != "did not get that far" || f.Why == "" {
		t.Errorf("the start that could not restore: got %+v, %q", f, restored(r, 2))
	}
	w.logs = w.logs[2:] // the start that made the epoch is gone
	if r := merge(t, w, time.Hour); r.Totals.Lost != 0 || r.Totals.Computing < 20 {
		t.Errorf("without the first start: got %+v", r.Totals)
	}
}

// TestLongLog: a log that has grown so long that its beginning is gone does not
// say what was restored. That does not make all before it lost.
func TestLongLog(t *testing.T) {
	w := newWorld(2, 2)
	e := w.dieBehindEpoch()
	w.start(e)
	w.compute(20 * time.Second)
	w.end()
	for i := range w.logs[2:] {
		l := &w.logs[2+i]
		l.Truncated, l.Events = true, l.Events[len(l.Events)-2:]
	}
	r := merge(t, w, time.Hour)
	if got := r.Runs[1].restoredText(); !near(r.Totals.Lost, 50, 1) || got != "unknown: the log is truncated" ||
		!strings.Contains(strings.Join(r.Notes, "\n"), "start 2: its log has lost its beginning") {
		t.Errorf("got %.1f s lost, want about 50; restored: %q, notes %q", r.Totals.Lost, got, r.Notes)
	}
}

// TestNoticed: what ranks did between the death of another and the end of their
// patience was no work that was lost.
func TestNoticed(t *testing.T) {
	w := newWorld(3, 1)
	w.start(0)
	w.compute(30 * time.Second)
	e := w.checkpoint("test", 1, false, true)
	w.compute(20 * time.Second)
	w.kill(1, true)
	for i := range w.logs {
		for j := range w.logs[i].Events {
			if e := &w.logs[i].Events[j]; e.Name == events.Failure {
				e.Dur = int64(8 * time.Second)
			}
		}
	}
	w.start(e)
	w.end()
	r := merge(t, w, time.Hour)
	if run := r.Runs[0]; !near(run.Noticed, 8, 0.01) || !near(run.Lost, 12.6, 0.5) {
		t.Errorf("got %.2f s until it was noticed and %.2f s lost, want 8 s and about 12.6 s", run.Noticed, run.Lost)
	}
	if tot := r.Totals; !near(tot.Noticing, 8, 0.01) || !near(tot.Wall, r.End.Sub(r.Start).Seconds(), 0.01) {
		t.Errorf("got %+v, want parts that add up to the wall time", tot)
	}
}

// TestSpareNode: the node of rank 0 dies and a spare takes its place, whose clock is behind. Start 2 comes after
// start 1 nevertheless.
func TestSpareNode(t *testing.T) {
	w := newWorld(1, 1)
	w.skew = func(node int) time.Duration { return []time.Duration{0, -2 * time.Minute}[node] }
	w.start(0)
	w.compute(100 * time.Second)
	e := w.checkpoint("test", 0, false, true)
	w.compute(20 * time.Second)
	w.kill(0, true)
	w.pause(30 * time.Second)
	w.place = func(int) int { return 1 }
	w.start(e)
	w.compute(50 * time.Second)
	w.end()
	r := merge(t, w, time.Hour)
	if r.Runs[1].Begin < r.Runs[0].End-1e6 || r.Runs[1].Dead > 1 ||
		!strings.Contains(strings.Join(r.Notes, "\n"), "the report shows it after that end") {
		t.Errorf("start 2 begins at %d µs, start 1 ends at %d µs, notes %q", r.Runs[1].Begin, r.Runs[0].End, r.Notes)
	}
}

// TestLostLogs: the logs of a start are gone with its nodes. Its epoch was kept,
// and so was what it stood on.
func TestLostLogs(t *testing.T) {
	w := newWorld(2, 1)
	w.start(0)
	w.compute(100 * time.Second)
	e := w.checkpoint("test", 0, false, true)
	w.compute(40 * time.Second)
	w.kill(1, true)
	w.start(e)
	w.compute(100 * time.Second)
	e = w.checkpoint("test", 0, false, true)
	w.kill(1, true)
	w.start(e)
	w.compute(10 * time.Second)
	w.end()
	w.logs = slices.DeleteFunc(w.logs, func(l events.RankLog) bool { return l.Header.Run == 2 })
	r := merge(t, w, time.Hour)
	if !near(r.Runs[0].Lost, 40, 1) || r.Runs[1].Lost != 0 {
		t.Errorf("lost: got %.1f and %.1f s, want about 40 and 0", r.Runs[0].Lost, r.Runs[1].Lost)
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "start 3 restored epoch 2, but the logs of the "+
		"start that made it are not here") {
		t.Errorf("notes: %s", notes)
	}
}

// TestCompletedLater: a run is killed when all has been written and before it is
// committed; the next one finds it whole and continues from it.
func TestCompletedLater(t *testing.T) {
	w := newWorld(2, 1)
	w.start(0)
	w.compute(60 * time.Second)
	e := w.checkpoint("test", 0, false, true)
	for i := range w.cur {
		w.cur[i].Events = slices.DeleteFunc(w.cur[i].Events, func(e events.Event) bool {
			return e.Name == events.Commit
		})
	}
	w.compute(9 * time.Second)
	w.kill(1, true)
	w.start(e)
	w.compute(5 * time.Second)
	w.end()
	r := merge(t, w, time.Hour)
	if q := r.Epochs[0]; q.Completed != 2 || q.Fault != "" || r.Totals.Failed != 0 || r.Totals.Committed != 1 ||
		r.Runs[0].Epochs != 1 {
		t.Errorf("got %+v, want an epoch that start 2 completed", q)
	}
	if !near(r.Runs[0].Lost, 9, 1) {
		t.Errorf("lost: got %.1f s, want about 9 s", r.Runs[0].Lost)
	}
}

// TestEmptyDirectories: nodes whose disk is empty are named, and no reason to
// show nothing of the others.
func TestEmptyDirectories(t *testing.T) {
	full, none := t.TempDir(), t.TempDir()
	writeLogs(t, full, newWorldThatEnds(2).logs, nil)
	r, err := Load(time.Now(), 0, none, full, filepath.Join(none, "gone"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Ranks) != 2 || strings.Count(strings.Join(r.Notes, "\n"), "has no event logs") != 2 {
		t.Errorf("got %d ranks, notes %q", len(r.Ranks), r.Notes)
	}
	var no *events.NoLogError
	if _, err := Load(time.Now(), 0, none, none); !errors.As(err, &no) {
		t.Errorf("two empty directories: got %v, want a *NoLogError", err)
	}
}

// TestUnreadable: logs of which nothing is left are no news of a thousand lines, and
// one start on one node has lists in its JSON, empty ones.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	runs := filepath.Join(dir, "events", "run-000001")
	if err := os.MkdirAll(runs, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(time.Now(), 0, dir); err == nil || !strings.Contains(err.Error(), "are empty") {
		t.Errorf("a start without logs: got %v", err)
	}
	for rank := range 5 {
		if err := os.WriteFile(filepath.Join(runs, fmt.Sprintf("rank-%06d.0.jsonl", rank)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(time.Now(), 0, dir); err == nil || strings.Count(err.Error(), "no complete line") != 3 ||
		!strings.Contains(err.Error(), "and 2 more") {
		t.Errorf("empty logs: got %v", err)
	}
	w := newWorld(2, 2)
	w.start(0)
	w.end()
	js, err := json.Marshal(merge(t, w, time.Hour))
	if err != nil || strings.Contains(string(js), "null") {
		t.Errorf("got %v, %s", err, js)
	}
}

// TestNothingYet: a job that has only just begun, with nothing in its logs but
// that, and a last line that is half written.
func TestNothingYet(t *testing.T) {
	w := newWorld(2, 1)
	w.start(0)
	w.keep()
	for i := range w.logs {
		w.logs[i].Events = w.logs[i].Events[:1]
	}
	dir := t.TempDir()
	writeLogs(t, dir, w.logs, []byte(`{"ev":"sync","t":17723`))
	r, err := Load(worldStart.Add(time.Second), 0, dir)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Running || len(r.Epochs) != 0 || r.Totals.Lost != 0 ||
		strings.Contains(strings.Join(r.Notes, "\n"), "damaged") {
		t.Errorf("got %+v", r)
	}
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil || strings.Contains(b.String(), "NaN") {
		t.Errorf("got %v or a NaN in what was written", err)
	}
	if later := merge(t, w, time.Hour); later.Runs[0].Ended != "killed" {
		t.Errorf("an hour later: got %s, want killed", later.Runs[0].Ended)
	}
}

func newWorldThatEnds(ranks int) *world {
	w := newWorld(ranks, 1)
	w.start(0)
	w.compute(time.Second)
	w.end()
	return w
}

// writeLogs writes logs as files, as docs/FORMAT.md says, with more at the end of
// each.
func writeLogs(t *testing.T, dir string, logs []events.RankLog, more []byte) {
	t.Helper()
	for _, l := range logs {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		for _, e := range l.Events {
			if err := enc.Encode(e); err != nil {
				t.Fatal(err)
			}
		}
		name := filepath.Join(dir, "events", fmt.Sprintf("run-%06d", l.Header.Run),
			fmt.Sprintf("rank-%06d.0.jsonl", l.Rank))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, append(b.Bytes(), more...),
			0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTwoJobs(t *testing.T) {
	w := fullJob(2, 1, 1)
	w.logs[0].Header.Job = "lake"
	var two *jobsError
	if _, err := mergeLogs(time.Now(), w.logs, nil); !errors.As(err, &two) {
		t.Errorf("got %v, want a *jobsError", err)
	}
	if _, err := mergeLogs(time.Now(), nil, nil); err == nil {
		t.Error("no logs: no error")
	}
}

// TestMissingAndTwice: logs of a node that was not given are missed, logs given
// twice count once.
func TestMissingAndTwice(t *testing.T) {
	w := fullJob(4, 2, 2)
	w.logs = append(w.logs, w.logs[0])
	w.logs = append(w.logs[:1:1], w.logs[2:]...) // without rank 1 of the first start
	r := merge(t, w, 0)
	notes := strings.Join(r.Notes, "\n")
	if r.Runs[0].Logs != 3 || !strings.Contains(notes, "3 of 4 ranks") || !strings.Contains(notes, "counted once") {
		t.Errorf("got %d logs and notes %q", r.Runs[0].Logs, notes)
	}
}

// TestSameNumber: two starts have one number, as when the directories of the nodes
// that a job began on are given with those of the nodes that it started over on. The
// newer is shown, and that there is another is said.
func TestSameNumber(t *testing.T) {
	old, w := newWorldThatEnds(2), newWorldThatEnds(2)
	for i := range old.logs {
		old.logs[i].Header.PID += 50
		for j := range old.logs[i].Events {
			old.logs[i].Events[j].Wall -= int64(time.Hour)
		}
	}
	w.logs = append(old.logs, w.logs...)
	r := merge(t, w, 0)
	if !r.Start.Equal(worldStart) || len(r.Runs) != 1 ||
		!strings.Contains(strings.Join(r.Notes, "\n"), "two starts with number 1") {
		t.Errorf("got a start at %v, %d runs, notes %q", r.Start, len(r.Runs), r.Notes)
	}
}

// TestTracks: every rank has a track in which one thing follows another, and every epoch is captured in it.
func TestTracks(t *testing.T) {
	r := merge(t, fullJob(4, 2, 3), 0)
	ranks, epochs := map[int]bool{}, map[uint64]bool{}
	until := map[int]int64{}
	for _, l := range r.tracks {
		ranks[l.rank] = true
		for _, s := range l.main {
			if s.from < until[l.rank] || s.to < s.from {
				t.Fatalf("rank %d: %+v, after what ended at %d", l.rank, s, until[l.rank])
			}
			until[l.rank] = s.to
			if s.kind == capturing {
				epochs[s.epoch] = true
			}
		}
	}
	if len(ranks) != 4 || len(epochs) != 5 {
		t.Errorf("got %d ranks and %d epochs captured, want 4 and 5", len(ranks), len(epochs))
	}
}

// TestPageIsSafe: names in the logs cannot become markup.
func TestPageIsSafe(t *testing.T) {
	w := fullJob(2, 1, 1)
	const evil = `</script><script>alert(1)</script><img src=x onerror=alert(2)>`
	for i := range w.logs {
		w.logs[i].Header.Job, w.logs[i].Header.Node, w.logs[i].Header.Levels = evil, evil+w.logs[i].Header.Node,
			[]string{"local", evil}
		for j := range w.logs[i].Events {
			if e := &w.logs[i].Events[j]; e.Text != "" || e.What != "" {
				e.Text, e.What = evil, evil
			}
		}
	}
	var b bytes.Buffer
	if err := merge(t, w, 0).WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "<script>alert") || strings.Contains(b.String(), "<img") {
		t.Error("a name from the log stands in the page as markup")
	}
	if strings.Contains(b.String(), "http://") || strings.Contains(b.String(), "https://") ||
		strings.Contains(b.String(), "src=\"") {
		t.Error("the page refers to something outside of itself")
	}
}

// TestTooMuch: a page draws no more than it can hold, the ranks that others
// waited for among it.
func TestTooMuch(t *testing.T) {
	r := merge(t, fullJob(40, 8, 4), 0)
	show := r.choose(300)
	if len(show) >= 40 || !show[0] || !show[3] {
		t.Errorf("got %d of 40 ranks, %v", len(show), show)
	}
	if all := r.choose(mostStretches); len(all) != 40 {
		t.Errorf("got %d of 40 ranks where there is room for all", len(all))
	}
}

func TestDurText(t *testing.T) {
	for s, want := range map[float64]string{0: "0 s", 25e-6: "25 µs", 0.0042: "4.20 ms", 0.999: "999 ms",
		61.5: "61.5 s", 150: "2 min 30 s", 7260: "2 h 1 min", 200000: "2 d 7 h"} {
		if got := durText(s); got != want {
			t.Errorf("%v: got %q, want %q", s, got, want)
		}
	}
}

// TestOtherNumbers: a job that shrinks and grows says on how many ranks each start was.
func TestOtherNumbers(t *testing.T) {
	w := newWorld(4, 2)
	w.start(0)
	w.compute(time.Second)
	e := w.checkpoint("interval", 0, false, true)
	w.kill(3, true)
	w.ranks = 3
	w.start(e)
	w.compute(time.Second)
	w.end()
	r := merge(t, w, time.Hour)
	if len(r.Runs) != 2 || r.Runs[0].Size != 4 || r.Runs[1].Size != 3 {
		t.Errorf("got %+v", r.Runs)
	}
	if want := "start 2 was on 3 ranks, the one before on 4"; !slices.Contains(r.Notes, want) {
		t.Errorf("got notes %q, want %q", r.Notes, want)
	}
}
