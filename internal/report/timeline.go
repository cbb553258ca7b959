package report

import (
	"encoding/json"
	"slices"
	"strings"
)

// The timeline in plain numbers, for the script of the page.
type (
	timelineData struct {
		T0       float64           `json:"t0"` // ms since 1970
		End      int64             `json:"end"`
		Kinds    []string          `json:"kinds"`
		Runs     []timelineRun     `json:"runs"`
		Rows     []timelineRow     `json:"rows"`
		Tracks   []timelineTrack   `json:"tracks"`
		Instants []timelineInstant `json:"instants"`
		Epochs   []timelineEpoch   `json:"epochs"`
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
	timelineTrack struct {
		Row       int            `json:"row"`
		Run       int            `json:"run"`
		Node      string         `json:"node"`
		Main      []int64        `json:"main"`
		Behind    []int64        `json:"behind"`
		Texts     map[int]string `json:"texts,omitempty"`      // of background writes, by place
		MainTexts map[int]string `json:"main_texts,omitempty"` // of the main thread
	}
	timelineInstant struct {
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

// mostStretches bounds a page to about ten megabytes.
const mostStretches = 400_000

// timeline encodes the tracks, of as many ranks as a page may hold.
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
	for i := range r.tracks {
		l := &r.tracks[i]
		if n, ok := row[l.rank]; ok {
			t := timelineTrack{Row: n, Run: l.run, Node: l.node, Main: flat(l.main), Behind: flat(l.behind),
				Texts: map[int]string{}, MainTexts: map[int]string{}}
			for j, s := range l.main {
				if strings.HasPrefix(s.text, "failed") || s.kind == restoring {
					t.MainTexts[j] = s.text
				}
			}
			for j, s := range l.behind {
				if strings.HasPrefix(s.text, "failed") || s.text == "rebuild" {
					t.Texts[j] = s.text
				}
			}
			d.Tracks = append(d.Tracks, t)
		}
	}
	for _, k := range r.instants {
		if n, ok := row[k.rank]; ok {
			d.Instants = append(d.Instants, timelineInstant{n, k.at, k.what, k.epoch, k.text})
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
	for i := range r.tracks {
		n += len(r.tracks[i].main) + len(r.tracks[i].behind)
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
