package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
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

	page = template.Must(template.New("page").Parse(pageHTML))
)

// pageData is what the template shows. Everything is text by then.
type pageData struct {
	CSS                              template.CSS
	JS, Data                         template.JS
	Job, Program, Status, StatusText string
	Ranks, Nodes, Starts             string
	From, To, Wall, Made             string
	Logs                             int
	Cards                            []card
	Parts                            []part
	Legend                           []part
	RowsNote, EpochsNote             string
	Levels                           []string
	Epochs                           []epochRow
	StorageChart, BlockedChart       template.HTML
	Runs                             []runRow
	Faults                           []faultRow
	RankRows                         []rankRow
	RanksOpen                        bool
	ClockNotes, Notes                []string
}

type card struct{ Value, Label string }

// part is a share of the wall time, or an entry of the legend.
type part struct {
	Kind, Label, Text, Share string
	Percent                  float64
}

type epochRow struct {
	Epoch                                                  uint64
	Run                                                    int
	Stop, Failed                                           bool
	From, To                                               int64
	By, At, ToCut, LastIn, BlockedMin, BlockedMedian       string
	BlockedMax, Vote, Bytes, Stored, Ratio, Outcome, Short string
	Mood                                                   string
	Park, Drain, Capture, Write, Flush                     cell
	Durable                                                []string
}

// cell is the median of the ranks, and what is said of the others when it is
// pointed at.
type cell struct{ Text, Tip string }

type runRow struct {
	Number, Epochs                                                             int
	From, To                                                                   int64
	Points                                                                     uint64
	Began, Dead, Restored, Restore, Startup, Lasted, Lost, Noticed, Ended, Why string
}

type faultRow struct {
	Run                       int
	At, Epoch, What, By, Text string
}

type rankRow struct {
	Rank, LastIn                                                int
	Node, Computing, Stopped, Longest, Starting, Writing, Bytes string
}

// WriteHTML writes the page.
func (r *Report) WriteHTML(w io.Writer) error {
	data, shown, err := r.timeline()
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	p := pageData{CSS: template.CSS(pageCSS), JS: template.JS(pageJS), Data: template.JS(data),
		Job: r.Job, Program: r.Program, Ranks: count(r.Size, "rank"), Nodes: count(len(r.Nodes), "node"),
		Starts: count(len(r.Runs), "start"),
		From:   r.Start.Round(time.Second).Format(time.DateTime), To: r.End.Round(time.Second).Format(time.DateTime),
		Wall: durText(r.Totals.Wall), Made: r.made.UTC().Format(time.DateTime),
		Logs: len(r.lanes), Levels: r.Levels, RanksOpen: r.Size <= 16, Notes: r.Notes}
	last := r.Runs[len(r.Runs)-1]
	p.Status, p.StatusText = last.Ended, map[string]string{"closed": "finished", "stopped": "stopped at a checkpoint",
		"running": "running", "killed": "dead"}[last.Ended]
	if last.Ended == "closed" && !last.began {
		p.Status, p.StatusText = "killed", "ended before computing"
	}
	p.RowsNote = "a row per rank: what its main thread does above, what is written behind it below; far out, the " +
		"height of a colour is its share"
	if shown < len(r.Ranks) {
		p.RowsNote += fmt.Sprintf("; %d of %d ranks are drawn, the tables count all", shown, len(r.Ranks))
	}
	p.Cards, p.Parts, p.Legend = r.cards(), r.parts(), legend()
	p.EpochsNote = "times are medians of the ranks, of Copied out the longest; point at one for its range and " +
		"slowest rank, click a row to see it above"
	for i := range r.Epochs {
		p.Epochs = append(p.Epochs, r.epochRow(&r.Epochs[i]))
	}
	p.StorageChart, p.BlockedChart = r.storageChart(), r.blockedChart()
	for i := range r.Runs {
		p.Runs = append(p.Runs, r.runRow(&r.Runs[i]))
	}
	for _, f := range r.Faults {
		p.Faults = append(p.Faults, faultRow{Run: f.Run, At: durText(float64(f.At) / 1e6), Epoch: numberOr(f.Epoch),
			What: f.What, By: said(f), Text: f.Text})
	}
	for _, s := range r.Ranks {
		p.RankRows = append(p.RankRows, rankRow{Rank: s.Rank, Node: s.Node, LastIn: s.LastIn,
			Computing: durText(s.Computing), Stopped: durText(s.Stopped),
			Longest: durText(s.Longest), Starting: durText(s.Starting), Writing: durText(s.Writing),
			Bytes: units.Bytes(s.Bytes)})
	}
	p.ClockNotes = r.clockNotes()
	return page.Execute(w, p)
}

func count(n int, what string) string { return fmt.Sprint(n, " ", plural(n, what)) }

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}

func numberOr(e uint64) string {
	if e == 0 {
		return ""
	}
	return fmt.Sprint(e)
}

func said(f Fault) string {
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
			all.list = append(all.list, sample{0, e.Blocked.Median})
		}
	}
	blocked := all.spread()
	out := []card{{fmt.Sprint(t.Committed), plural(t.Committed, "checkpoint") + " committed"}}
	if t.Failed > 0 {
		out = append(out, card{fmt.Sprint(t.Failed), plural(t.Failed, "checkpoint") + " failed"})
	}
	if blocked.Ranks > 0 {
		out = append(out, card{durText(blocked.Median), "blocked by a checkpoint (median)"})
	}
	out = append(out, card{percent(t.Overhead), "of computing time spent stopped"})
	if len(r.Runs) > 1 {
		out = append(out, card{fmt.Sprint(len(r.Runs) - 1), plural(len(r.Runs)-1, "restart")},
			card{durText(t.Lost), "work lost and done again"}, card{durText(t.Dead), "not running"})
	}
	for i := len(r.Runs) - 1; i >= 0; i-- {
		if run := r.Runs[i]; run.Restored > 0 {
			out = append(out, card{durText(run.Restore), "restoring, at the last restart"})
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
		{"noticing", "until a death was noticed", t.Noticing}, {"stopped", "stopped by checkpoints", t.Stopped},
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
		{"noticing", "dead, not yet noticed"}, {"starting", "starting"}, {"restoring", "restoring"},
		{"parked", "parked at a Point"}, {"draining", "draining messages"},
		{"capturing", "capturing"}, {"held", "held while it is written"}, {"stopping", "final checkpoint"},
		{"ending", "done"}, {"writing", "writing behind the program"}, {"voting", "waiting for all votes"},
		{"redundancy", "making redundant"}, {"flushing", "flushing to global"}, {"dead", "not running"}} {
		out = append(out, part{Kind: p[0], Label: p[1]})
	}
	return out
}

func (r *Report) epochRow(q *Epoch) epochRow {
	row := epochRow{Epoch: q.Epoch, Run: q.Run, Stop: q.Stop, From: q.Begin, To: q.Over,
		At: durText(float64(q.Begin) / 1e6), By: q.By,
		ToCut: durOr(q.ToCut), Park: median(q.Park), Drain: median(q.Drain), Capture: median(q.Capture),
		Write: median(q.Write), Vote: durOr(q.Vote),
		Bytes: units.Bytes(q.Bytes)}
	if q.ByRank >= 0 {
		row.By += fmt.Sprintf(", rank %d", q.ByRank)
	}
	if q.LastIn >= 0 {
		row.LastIn = fmt.Sprint("rank ", q.LastIn)
	}
	if q.Blocked.Ranks > 0 {
		row.BlockedMin, row.BlockedMedian = durText(q.Blocked.Min), durText(q.Blocked.Median)
		row.BlockedMax = fmt.Sprintf("%s (%d)", durText(q.Blocked.Max), q.Blocked.Slowest)
	}
	for i, l := range sortedKeys(q.Outward) {
		o := q.Outward[l]
		if i > 0 {
			row.Flush.Text += " + "
			row.Flush.Tip += "; "
		}
		row.Flush.Text += durText(o.Max)
		row.Flush.Tip += fmt.Sprintf("to %s: %s to %s, longest on rank %d, of %d ranks", l, durText(o.Min),
			durText(o.Max), o.Slowest, o.Ranks)
	}
	for _, l := range r.Levels {
		d, ok := q.Durable[l]
		row.Durable = append(row.Durable, "")
		if ok {
			row.Durable[len(row.Durable)-1] = durText(d)
		}
	}
	first := ""
	if len(r.Levels) > 0 {
		first = r.Levels[len(r.Levels)-1]
	}
	if n, ok := q.Stored[first]; ok {
		row.Stored = units.Bytes(n)
		if q.Bytes > 0 && n > 0 {
			row.Ratio = fmt.Sprintf("%.2f", float64(q.Bytes)/float64(n))
		}
	}
	at := strings.Join(sortedKeys(q.Durable), ", ")
	switch {
	case q.Fault != "" && at == "":
		row.Failed, row.Short, row.Mood, row.Outcome = true, "failed", "bad", q.Fault
	case q.Fault != "":
		row.Failed, row.Short, row.Mood, row.Outcome = true, at+" only", "bad", "committed at "+at+" only: "+q.Fault
	case q.Completed > 0 && at == "":
		row.Short, row.Mood, row.Outcome = fmt.Sprint("by start ", q.Completed), "good",
			fmt.Sprintf("all shards were there when the run ended; start %d completed and restored it", q.Completed)
	case len(q.Durable) == len(r.Levels):
		row.Short, row.Mood, row.Outcome = "committed", "good", "committed at "+at
	case at == "":
		row.Short, row.Mood, row.Outcome = "under way", "partly", "not committed anywhere yet"
	default:
		row.Short, row.Mood, row.Outcome = at+" only", "partly", "committed at "+at+
			"; the run ended, or has not come further yet"
	}
	return row
}

func (r *Report) runRow(run *Run) runRow {
	row := runRow{Number: run.Number, Epochs: run.Epochs, From: run.Begin, To: run.End, Points: run.Points,
		Ended: run.Ended, Why: run.Why,
		Began: r.Start.Add(time.Duration(run.Begin) * time.Microsecond).Round(time.Second).Format(time.DateTime),
		Dead:  durOr(run.Dead), Startup: durOr(run.Startup),
		Lasted: durText(float64(run.End-run.Begin) / 1e6), Lost: durOr(run.Lost), Noticed: durOr(run.Noticed),
		Restored: "nothing: from the start"}
	if run.Within > 0 { // nobody saw it end
		row.Lasted = fmt.Sprintf("%s to %s", row.Lasted, durText(float64(run.End-run.Begin)/1e6+run.Within))
	}
	switch {
	case !run.began && run.Ended == "running":
		row.Restored = "not yet"
	case !run.began:
		row.Restored = "did not come so far"
	case run.gone:
		row.Restored = "not in the log any more"
	case run.Restored > 0:
		row.Restored, row.Restore = fmt.Sprintf("epoch %d from %s", run.Restored, run.Level), durText(run.Restore)
	}
	return row
}

// clockNotes says how the clocks of the nodes were brought together.
func (r *Report) clockNotes() []string {
	var out []string
	agree, widest := map[string]bool{}, 0.0
	for _, c := range r.Clocks {
		if c.SetBy != 0 {
			out = append(out, fmt.Sprintf("start %d: the clock of %s was set by %s while the job ran; its times are "+
				"counted by a clock that is never set", c.Run, c.Node, signed(c.SetBy)))
		}
		switch {
		case c.reference:
		case c.Events == 0:
			out = append(out, fmt.Sprintf("start %d: %s has no event in common with the node of rank 0; its clock "+
				"was taken as it is", c.Run, c.Node))
		case c.Drifts:
			out = append(out, fmt.Sprintf("start %d: the clock of %s drifts: no one offset fits all %d common "+
				"events; %s was taken off, which may be wrong by %s",
				c.Run, c.Node, c.Events, signed(c.Offset), durText((c.Low-c.High)/2)))
		case c.Offset != 0:
			out = append(out, fmt.Sprintf("start %d: the clock of %s is between %s and %s ahead of that of rank 0's "+
				"node by %d common events; %s was taken off",
				c.Run, c.Node, signed(c.Low), signed(c.High), c.Events, signed(c.Offset)))
		default:
			agree[c.Node] = true
			widest = max(widest, c.High-c.Low)
		}
	}
	if len(agree) > 0 {
		out = append(out, fmt.Sprintf("the common events show no difference between the clocks of %d other node(s); "+
			"it is less than %s", len(agree), durText(widest)))
	}
	if len(out) == 0 {
		out = append(out, "all ranks of each start were on one node and share its clock")
	}
	return out
}

func signed(s float64) string {
	if s < 0 {
		return "-" + durText(-s)
	}
	return durText(s)
}

func median(s Spread) cell {
	if s.Ranks == 0 {
		return cell{}
	}
	return cell{durText(s.Median), fmt.Sprintf("%s to %s, longest on rank %d, of %d ranks", durText(s.Min),
		durText(s.Max), s.Slowest, s.Ranks)}
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

// The timeline in plain numbers, for the script of the page.
type (
	timelineData struct {
		T0     float64         `json:"t0"` // ms since 1970
		End    int64           `json:"end"`
		Kinds  []string        `json:"kinds"`
		Runs   []timelineRun   `json:"runs"`
		Rows   []timelineRow   `json:"rows"`
		Lanes  []timelineLanes `json:"lanes"`
		Marks  []timelineMark  `json:"marks"`
		Epochs []timelineEpoch `json:"epochs"`
	}
	timelineRun struct {
		N int   `json:"n"`
		B int64 `json:"b"`
		E int64 `json:"e"`
	}
	timelineRow struct {
		Rank int    `json:"rank"`
		Node string `json:"node"`
	}
	// Six numbers a stretch: kind, begin after that of the one before, length,
	// epoch, 1 if it was never seen to end, bytes.
	timelineLanes struct {
		Row    int            `json:"row"`
		Run    int            `json:"run"`
		Node   string         `json:"node"`
		Main   []int64        `json:"main"`
		Behind []int64        `json:"behind"`
		Texts  map[int]string `json:"texts,omitempty"` // of what is behind, by place
		Said   map[int]string `json:"said,omitempty"`  // of the main thread
	}
	timelineMark struct {
		Row   int    `json:"row"`
		At    int64  `json:"at"`
		What  string `json:"what"`
		Epoch uint64 `json:"epoch,omitempty"`
		Text  string `json:"text"`
	}
	timelineEpoch struct {
		N      uint64 `json:"n"`
		From   int64  `json:"from"`
		To     int64  `json:"to"`
		Cut    int64  `json:"cut"`
		Failed bool   `json:"failed,omitempty"`
	}
)

// mostStretches is what a page may hold: about ten megabytes.
const mostStretches = 400_000

// timeline encodes the lanes, of as many ranks as a page may hold.
func (r *Report) timeline() (js []byte, shown int, err error) {
	d := timelineData{T0: float64(r.Start.UnixMicro()) / 1e3, Kinds: kindNames[:]}
	show := r.choose(mostStretches)
	row := map[int]int{}
	for _, s := range r.Ranks {
		if show[s.Rank] {
			row[s.Rank] = len(d.Rows)
			d.Rows = append(d.Rows, timelineRow{s.Rank, s.Node})
		}
	}
	for _, run := range r.Runs {
		d.Runs = append(d.Runs, timelineRun{run.Number, run.Begin, run.End})
		d.End = max(d.End, run.End)
	}
	for i := range r.lanes {
		l := &r.lanes[i]
		if n, ok := row[l.rank]; ok {
			t := timelineLanes{Row: n, Run: l.run, Node: l.node, Main: flat(l.main), Behind: flat(l.behind),
				Texts: map[int]string{}, Said: map[int]string{}}
			for j, s := range l.main {
				if strings.HasPrefix(s.text, "failed") || s.kind == restoring {
					t.Said[j] = s.text
				}
			}
			for j, s := range l.behind {
				if strings.HasPrefix(s.text, "failed") || s.text == "rebuild" {
					t.Texts[j] = s.text
				}
			}
			d.Lanes = append(d.Lanes, t)
		}
	}
	for _, k := range r.marks {
		if n, ok := row[k.rank]; ok {
			d.Marks = append(d.Marks, timelineMark{n, k.at, k.what, k.epoch, k.text})
		}
	}
	for _, q := range r.Epochs {
		d.Epochs = append(d.Epochs, timelineEpoch{q.Epoch, q.Begin, q.Over, q.Cut, q.Fault != ""})
	}
	js, err = json.Marshal(d)
	return js, len(d.Rows), err
}

// choose picks the ranks to draw: all, or rank 0, those that were waited for most,
// and others evenly.
func (r *Report) choose(most int) map[int]bool {
	n := 0
	for i := range r.lanes {
		n += len(r.lanes[i].main) + len(r.lanes[i].behind)
	}
	show := map[int]bool{}
	every := max(1, (n+most-1)/most)
	for i, s := range r.Ranks {
		if i%every == 0 {
			show[s.Rank] = true
		}
	}
	if every == 1 {
		return show
	}
	slow := slices.Clone(r.Ranks)
	slices.SortStableFunc(slow, func(a, b RankSums) int { return b.LastIn - a.LastIn })
	for _, s := range slow[:min(16, len(slow))] {
		show[s.Rank] = true
	}
	return show
}

func flat(list []stretch) []int64 {
	slices.SortStableFunc(list, func(a, b stretch) int { return int(max(-1, min(1, a.from-b.from))) })
	out := make([]int64, 0, 6*len(list))
	at := int64(0)
	for _, s := range list {
		out = append(out, int64(s.kind), s.from-at, s.to-s.from, int64(s.epoch), int64(b2i(s.open)), s.bytes)
		at = s.from
	}
	return out
}
