package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
)

func merge(t *testing.T, w *world, age time.Duration) *Report {
	t.Helper()
	r, err := Merge(worldStart.Add(w.now+age), w.logs, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func near(got, want, tolerance float64) bool { return math.Abs(got-want) <= tolerance }

// TestStory: the account of a job that was killed once, gave an epoch up, was
// stopped and finished.
func TestStory(t *testing.T) {
	w := story(8, 2, 6)
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
	if r.Runs[1].Restored != 6 || r.Runs[2].Restored != 8 || !near(r.Runs[1].Dead, 30, 1) || !near(r.Runs[2].Dead, 45, 1) {
		t.Errorf("starts 2 and 3: got %+v", r.Runs[1:])
	}
	tot := r.Totals
	sum := tot.Computing + tot.Lost + tot.Stopped + tot.Starting + tot.Ending + tot.Dead
	if wall := r.End.Sub(r.Start).Seconds(); !near(sum, wall, 0.01) || !near(tot.Wall, wall, 0.01) {
		t.Errorf("the parts add up to %.3f s, the wall time is %.3f s", sum, wall)
	}
	if tot.Committed != 8 || tot.Failed != 1 || len(r.Epochs) != 9 {
		t.Errorf("epochs: got %d committed, %d failed of %d, want 8 and 1 of 9", tot.Committed, tot.Failed, len(r.Epochs))
	}
	q := r.Epochs[2]
	if q.Epoch != 3 || q.LastIn != 2 || q.By != "Daly's interval" || q.ByRank != 0 || !near(q.ToCut, 0.35, 0.01) || q.Bytes != 8<<30 ||
		q.Stored["local"] != 8<<30 || q.Stored["global"] != (8<<30)/10*6 && q.Stored["global"] != 4*(2<<30*3/5) || len(q.Durable) != 2 || q.Blocked.Ranks != 8 {
		t.Errorf("epoch 3: got %+v", q)
	}
	if f := r.Epochs[6]; f.Fault == "" || f.Cut != 0 || len(f.Durable) != 0 {
		t.Errorf("the epoch that was given up: got %+v", f)
	}
	if len(r.Faults) != 2 || r.Faults[0].What != "lost" || r.Faults[0].Ranks != 7 || r.Faults[1].Ranks != 8 {
		t.Errorf("faults: got %+v, want a lost rank that 7 name and an epoch given up that all name", r.Faults)
	}
	for _, l := range r.lanes {
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
	w := story(8, 2, 6)
	for _, c := range merge(t, w, 0).Clocks {
		node := int(c.Node[len(c.Node)-1] - '0')
		want := (time.Duration(node%5) * 700 * time.Millisecond).Seconds()
		if c.Low > want || c.High < want || !near(c.Offset, want, 0.01) || c.Drifts || c.Events == 0 {
			t.Errorf("%s in start %d: got %.4f s in [%.4f, %.4f] by %d events, want %.1f s", c.Node, c.Run, c.Offset, c.Low, c.High, c.Events, want)
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

// TestDriftAndSet: what no one offset explains is said.
func TestDriftAndSet(t *testing.T) {
	w := newWorld(2, 1)
	w.skew = func(node int) time.Duration { return time.Duration(node) * w.now / 10 } // a tenth too fast
	w.start(0)
	for range 3 {
		w.compute(20 * time.Second)
		w.checkpoint("test", 0, false, false)
	}
	w.end()
	r := merge(t, w, 0)
	if len(r.Clocks) != 1 || r.Clocks[0].SetBy == 0 {
		t.Errorf("got %+v, want the clock of node001 to be called set", r.Clocks)
	}
	notes := strings.Join(r.clockNotes(), "\n")
	if !strings.Contains(notes, "node001 was set by") {
		t.Errorf("got notes %q", notes)
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
	}
	if r.Epochs[0].Fault == "" || r.Totals.Failed != 1 {
		t.Errorf("got %+v, want a fault", r.Epochs[0])
	}
	for _, l := range r.lanes {
		if len(l.behind) != 1 || !l.behind[0].open || l.behind[0].to != r.Runs[0].End {
			t.Errorf("rank %d: got %+v, want a write that was not seen to end", l.rank, l.behind)
		}
	}
	// The same logs a second after the last sign of life are of a job that runs.
	if again := merge(t, w, time.Second); again.Runs[0].Ended != "running" || !again.Running || again.Epochs[0].Fault != "" {
		t.Errorf("just now: got %+v, %+v, want a running job", again.Runs[0], again.Epochs[0])
	}
}

// TestLineage: two deaths in a row from one epoch lose the work of both runs,
// each once.
func TestLineage(t *testing.T) {
	w := newWorld(1, 1)
	w.start(0)
	w.compute(100 * time.Second)
	e := w.checkpoint("test", 0, false, false)
	w.compute(50 * time.Second)
	w.kill(-1, false)
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

func TestTwoJobs(t *testing.T) {
	w := story(2, 1, 1)
	w.logs[0].Header.Job = "lake"
	var two *JobsError
	if _, err := Merge(time.Now(), w.logs, nil); !errors.As(err, &two) {
		t.Errorf("got %v, want a *JobsError", err)
	}
	if _, err := Merge(time.Now(), nil, nil); err == nil {
		t.Error("no logs: no error")
	}
}

// TestMissingAndTwice: logs of a node that was not given are missed, logs given
// twice count once.
func TestMissingAndTwice(t *testing.T) {
	w := story(4, 2, 2)
	w.logs = append(w.logs, w.logs[0])
	w.logs = append(w.logs[:1:1], w.logs[2:]...) // without rank 1 of the first start
	r := merge(t, w, 0)
	notes := strings.Join(r.Notes, "\n")
	if r.Runs[0].Logs != 3 || !strings.Contains(notes, "3 of 4 ranks") || !strings.Contains(notes, "counted once") {
		t.Errorf("got %d logs and notes %q", r.Runs[0].Logs, notes)
	}
}

// TestTrace: the trace is JSON of the format, with every rank and epoch.
func TestTrace(t *testing.T) {
	r := merge(t, story(4, 2, 3), 0)
	var b bytes.Buffer
	if err := r.WriteTrace(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		TraceEvents []struct {
			Name, Ph string
			TS, Dur  int64
			PID, TID int
			Args     map[string]any
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	ranks, epochs := map[int]bool{}, map[any]bool{}
	for _, e := range got.TraceEvents {
		if e.Ph == "X" {
			ranks[e.PID] = true
			if e.Dur < 0 {
				t.Fatalf("a negative duration: %+v", e)
			}
			if e.Name == "capturing" {
				epochs[e.Args["epoch"]] = true
			}
		}
	}
	if len(ranks) != 4 || len(epochs) != 5 {
		t.Errorf("got %d ranks and %d epochs captured, want 4 and 5", len(ranks), len(epochs))
	}
}

// TestPageIsSafe: names in the logs cannot become markup.
func TestPageIsSafe(t *testing.T) {
	w := story(2, 1, 1)
	const evil = `</script><script>alert(1)</script><img src=x onerror=alert(2)>`
	for i := range w.logs {
		w.logs[i].Header.Job, w.logs[i].Header.Node, w.logs[i].Header.Levels = evil, evil+w.logs[i].Header.Node, []string{"local", evil}
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
	if strings.Contains(b.String(), "http://") || strings.Contains(b.String(), "https://") || strings.Contains(b.String(), "src=\"") {
		t.Error("the page refers to something outside of itself")
	}
}

// TestTooMuch: a page draws no more than it can hold, the ranks that others
// waited for among it.
func TestTooMuch(t *testing.T) {
	r := merge(t, story(40, 8, 4), 0)
	show := r.choose(300)
	if len(show) >= 40 || !show[0] || !show[3] {
		t.Errorf("got %d of 40 ranks, %v", len(show), show)
	}
	if all := r.choose(mostStretches); len(all) != 40 {
		t.Errorf("got %d of 40 ranks where there is room for all", len(all))
	}
}

func TestDurText(t *testing.T) {
	for s, want := range map[float64]string{0: "0 s", 25e-6: "25 µs", 0.0042: "4.20 ms", 0.999: "999 ms", 61.5: "61.5 s", 150: "2 min 30 s", 7260: "2 h 1 min", 200000: "2 d 7 h"} {
		if got := durText(s); got != want {
			t.Errorf("%v: got %q, want %q", s, got, want)
		}
	}
}
