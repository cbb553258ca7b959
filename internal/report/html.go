package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/units"
)

// The page: hand-written, with all it needs inside.
var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/page.css
	pageCSS string
	//go:embed page/page.js
	pageJS string

	page = template.Must(template.New("page").Funcs(template.FuncMap{
		"at": at, "bytes": units.Bytes, "count": units.Count, "date": date, "dur": durText, "durOr": durOr, "tip": tip,
		"copiedOut": Epoch.copiedOut, "lasted": Run.lasted, "restored": Run.restoredText, "reportedBy": reportedBy,
		"outcome": (*Report).outcome, "time": (*Report).time, "written": (*Report).written}).Parse(pageHTML))
)

type pageData struct {
	*Report
	CSS                template.CSS
	JS, Data           template.JS
	Status, StatusText string
	Logs               int
	Made               time.Time
	Cards              []card
	Parts              []part
	Legend             []part
	Drawn              int // ranks that have a row in the timeline
	ClockNotes         []string
}

type card struct{ Value, Label string }

// part is a share of the wall time, or an entry of the legend.
type part struct {
	Kind, Label, Text, Share string
	Percent                  float64
}

// WriteHTML writes the page.
func (r *Report) WriteHTML(w io.Writer) error {
	data, shown, err := r.timeline()
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	last := r.Runs[len(r.Runs)-1]
	p := pageData{Report: r, CSS: template.CSS(pageCSS), JS: template.JS(pageJS), Data: template.JS(data),
		Status: last.Ended, StatusText: map[string]string{"closed": "finished", "stopped": "stopped at a checkpoint",
			"running": "running", "killed": "dead"}[last.Ended],
		Logs: len(r.tracks), Made: r.made.Truncate(time.Second), Cards: r.cards(), Parts: r.parts(), Legend: legend(),
		Drawn: shown, ClockNotes: r.clockNotes()}
	if last.Ended == "closed" && !last.began {
		p.Status, p.StatusText = "killed", "ended before computing"
	}
	return page.Execute(w, p)
}

func date(t time.Time) string { return t.UTC().Round(time.Second).Format(time.DateTime) }

// at returns a time since the first start.
func at(us int64) string { return durText(float64(us) / 1e6) }

func reportedBy(f Fault) string {
	if f.Ranks == 1 {
		return fmt.Sprint("rank ", f.Rank)
	}
	return fmt.Sprintf("rank %d and %d more", f.Rank, f.Ranks-1)
}

func (r *Report) cards() []card {
	t := r.Totals
	var all gathered
	for _, e := range r.Epochs {
		if e.Blocked.Ranks > 0 {
			all = append(all, sample{0, e.Blocked.Median})
		}
	}
	blocked := all.times()
	out := []card{{fmt.Sprint(t.Committed), units.Plural(t.Committed, "checkpoint") + " committed"}}
	if t.Failed > 0 {
		out = append(out, card{fmt.Sprint(t.Failed), units.Plural(t.Failed, "checkpoint") + " failed"})
	}
	if blocked.Ranks > 0 {
		out = append(out, card{durText(blocked.Median), "blocked by a checkpoint (median)"})
	}
	out = append(out, card{percent(t.Overhead), "overhead: time stopped / time computing"})
	if len(r.Runs) > 1 {
		out = append(out, card{fmt.Sprint(len(r.Runs) - 1), units.Plural(len(r.Runs)-1, "restart")},
			card{durText(t.Lost), "work lost and repeated"}, card{durText(t.Dead), "not running"})
	}
	for i := len(r.Runs) - 1; i >= 0; i-- {
		if run := r.Runs[i]; run.Restored > 0 {
			out = append(out, card{durText(run.Restore), "to restore at the last restart"})
			break
		}
	}
	return out
}

func (r *Report) parts() []part {
	t := r.Totals
	var out []part
	for _, p := range []struct {
		kind, label string
		s           float64
	}{
		{"computing", "computing", t.Computing}, {"lost", "computed, then lost", t.Lost},
		{"noticing", "before a death was noticed", t.Noticing}, {"stopped", "stopped by checkpoints", t.Stopped},
		{"restoring", "starting and restoring", t.Starting}, {"ending", "after the last step", t.Ending},
		{"dead", "not running", t.Dead},
	} {
		if p.s == 0 && p.kind != "computing" {
			continue
		}
		share := 0.0
		if t.Wall > 0 {
			share = p.s / t.Wall
		}
		out = append(out, part{Kind: p.kind, Label: p.label, Text: durText(p.s), Share: percent(share),
			Percent: 100 * share})
	}
	return out
}

func legend() []part {
	var out []part
	for _, p := range [][2]string{{"computing", "computing"}, {"lost", "computed, then lost"},
		{"noticing", "a rank died, not yet noticed"}, {"starting", "starting"}, {"restoring", "restoring"},
		{"parked", "parked at a Point"}, {"draining", "draining messages"},
		{"capturing", "capturing"}, {"held", "waiting for its write"}, {"stopping", "final checkpoint"},
		{"ending", "done"}, {"writing", "writing in the background"}, {"voting", "waiting for all votes"},
		{"redundancy", "writing copies or parity"}, {"flushing", "flushing to global"}, {"dead", "not running"}} {
		out = append(out, part{Kind: p[0], Label: p[1]})
	}
	return out
}

// copiedOut returns how long the slowest rank took to copy the epoch to each outer level,
// and the text that it shows on hover.
func (q Epoch) copiedOut() (c struct{ Text, Tip string }) {
	for i, l := range slices.Sorted(maps.Keys(q.Flush)) {
		o := q.Flush[l]
		if i > 0 {
			c.Text += " + "
			c.Tip += "; "
		}
		c.Text += durText(o.Max)
		c.Tip += fmt.Sprintf("to %s: %s", l, tip(o))
	}
	return c
}

// written returns the size of the epoch at the nearest level, the ratio of its state to that, and the
// sizes at all levels, which it shows on hover.
func (r *Report) written(q Epoch) (w struct{ Bytes, Ratio, Tip string }) {
	if len(r.Levels) == 0 {
		return w
	}
	var at []string
	for _, l := range r.Levels {
		if n, ok := q.Stored[l]; ok {
			at = append(at, l+": "+units.Bytes(n))
		}
	}
	w.Tip = strings.Join(at, ", ")
	if n, ok := q.Stored[r.Levels[len(r.Levels)-1]]; ok {
		w.Bytes = units.Bytes(n)
		if q.Bytes > 0 && n > 0 {
			w.Ratio = fmt.Sprintf("%.2f", float64(q.Bytes)/float64(n))
		}
	}
	return w
}

// outcome is the result of an epoch: in a few words, in a sentence, and as a class of the style sheet.
type outcome struct {
	Short, Text, Class string
	Failed             bool
}

func (r *Report) outcome(q Epoch) outcome {
	at := strings.Join(slices.Sorted(maps.Keys(q.Durable)), ", ")
	switch {
	case q.Fault != "" && at == "":
		return outcome{"failed", q.Fault, "bad", true}
	case q.Fault != "":
		return outcome{at + " only", "committed at " + at + " only: " + q.Fault, "bad", true}
	case q.Completed > 0 && at == "":
		return outcome{fmt.Sprint("by start ", q.Completed), fmt.Sprintf("all shards were there when the run ended; "+
			"start %d completed and restored it", q.Completed), "good", false}
	case len(q.Durable) == len(r.Levels):
		return outcome{"committed", "committed at " + at, "good", false}
	case at == "":
		return outcome{"under way", "not committed yet", "partly", false}
	}
	return outcome{at + " only", "committed at " + at + "; not yet, or never, at the other levels", "partly", false}
}

func (run Run) restoredText() string {
	switch {
	case !run.began && run.Ended == "running":
		return "not yet"
	case !run.began:
		return "did not get that far"
	case run.truncated:
		return "unknown: the log is truncated"
	case run.Restored > 0:
		return fmt.Sprintf("epoch %d from %s", run.Restored, run.Level)
	}
	return "nothing"
}

// lasted returns how long a start lasted; a range if no rank saw it end.
func (run Run) lasted() string {
	text := at(run.End - run.Begin)
	if run.Within > 0 {
		text += " to " + durText(float64(run.End-run.Begin)/1e6+run.Within)
	}
	return text
}

func (r *Report) time(us int64) time.Time { return r.Start.Add(time.Duration(us) * time.Microsecond) }

// clockNotes says when checkpoints are taken, and how the clocks of the nodes were brought together.
func (r *Report) clockNotes() []string {
	var out []string
	if taken := r.Runs[len(r.Runs)-1].Taken; taken != "" {
		out = append(out, "checkpoints are taken "+taken)
	}
	for _, c := range r.Clocks {
		if c.Offset != 0 {
			out = append(out, fmt.Sprintf("start %d: the clock of %s is between %s and %s ahead of that of rank 0's "+
				"node; %s was subtracted from its times", c.Run, c.Node, signed(c.Low), signed(c.High),
				signed(c.Offset)))
		}
	}
	return out
}

func signed(s float64) string {
	if s < 0 {
		return "-" + durText(-s)
	}
	return durText(s)
}

func tip(s RankTimes) string {
	if s.Ranks == 0 {
		return ""
	}
	return fmt.Sprintf("%s to %s over %d ranks, longest on rank %d", durText(s.Min), durText(s.Max), s.Ranks, s.Slowest)
}

func durOr(s float64) string {
	if s == 0 {
		return ""
	}
	return durText(s)
}

func percent(share float64) string {
	switch p := 100 * share; {
	case p == 0:
		return "0 %"
	case p < 0.01:
		return "< 0.01 %"
	case p < 1:
		return fmt.Sprintf("%.2f %%", p)
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

// durText writes a duration for people: three digits.
func durText(s float64) string {
	switch {
	case s == 0:
		return "0 s"
	case s < 1e-3:
		return fmt.Sprintf("%.0f µs", 1e6*s)
	case s < 1:
		return fmt.Sprintf("%s ms", three(1e3*s))
	case s < 120:
		return fmt.Sprintf("%s s", three(s))
	case s < 7200:
		return fmt.Sprintf("%d min %d s", int(s)/60, int(s)%60)
	case s < 48*3600:
		return fmt.Sprintf("%d h %d min", int(s)/3600, int(s)%3600/60)
	}
	return fmt.Sprintf("%d d %d h", int(s)/86400, int(s)%86400/3600)
}

func three(v float64) string {
	switch {
	case v < 9.995:
		return fmt.Sprintf("%.2f", v)
	case v < 99.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
