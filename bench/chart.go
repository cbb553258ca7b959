package bench

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"unicode/utf8"
)

// Measures of a chart in points.
const (
	chartLine   = 17.0  // height of a row
	chartWidth  = 460.0 // of the axis
	chartNotes  = 210.0 // to the right of it
	chartTop    = 34.0
	chartBottom = 40.0
	chartLetter = 5.6 // about the width of a letter
)

// Chart draws the rows that have a ratio as SVG: a mark for each on a logarithmic axis, with the range of the runs and
// the goal. It is nil if there are none.
func Chart(rows []Row) []byte {
	var shown []Row
	low, high, longest := 1.0, 1.0, 0
	for _, r := range rows {
		if r.Ratio == nil || *r.Ratio <= 0 {
			continue
		}
		shown = append(shown, r)
		from, to := r.ends()
		if r.Goal != nil {
			to = max(to, *r.Goal)
		}
		low, high = min(low, from), max(high, to, *r.Ratio)
		longest = max(longest, utf8.RuneCountInString(r.label()))
	}
	if shown == nil {
		return nil
	}
	a := axis{left: 16 + chartLetter*float64(longest), low: low / 1.1, high: high * 1.1}
	width, bottom := a.left+chartWidth+chartNotes, chartTop+chartLine*float64(len(shown))
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" `+
		`font-family="Helvetica,Arial,sans-serif" font-size="11">`+"\n", width, bottom+chartBottom)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	text(&b, width/2, 18, "middle", "holdfast bench "+shown[0].Suite)
	a.draw(&b, bottom)
	for i, r := range shown {
		a.mark(&b, chartTop+chartLine*(float64(i)+0.5), r)
	}
	text(&b, a.left+chartWidth/2, bottom+32, "middle", "ratio to the baseline in the same run   "+
		"(bar: range of the runs, dot: value;  | goal;  blue: met, orange: not met)")
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (r *Row) label() string { return r.Case + ": " + r.Metric }

// ends returns the smallest and the largest ratio of the runs.
func (r *Row) ends() (low, high float64) {
	if r.Min == nil || r.Max == nil || *r.Min <= 0 {
		return *r.Ratio, *r.Ratio
	}
	return *r.Min / *r.Baseline, *r.Max / *r.Baseline
}

// axis is where ratios from low to high are drawn.
type axis struct{ left, low, high float64 }

func (a axis) at(v float64) float64 {
	return a.left + chartWidth*math.Log(v/a.low)/math.Log(a.high/a.low)
}

// draw draws the axis, with 1, 2 and 5 of each power of ten.
func (a axis) draw(b *bytes.Buffer, bottom float64) {
	for e := math.Floor(math.Log10(a.low)); e <= math.Ceil(math.Log10(a.high)); e++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, e)
			if v < a.low || v > a.high {
				continue
			}
			line(b, a.at(v), chartTop, a.at(v), bottom, map[bool]string{true: "#aaa", false: "#e4e4e4"}[v == 1], 0.8)
			text(b, a.at(v), bottom+14, "middle", fmt.Sprintf("%.4g", v))
		}
	}
}

func (a axis) mark(b *bytes.Buffer, y float64, r Row) {
	colour := "#6e6e6e" // this and the others can be told apart in print and by colour-blind readers (Okabe and Ito)
	if r.Met != nil {
		colour = map[bool]string{true: "#0072b2", false: "#d55e00"}[*r.Met]
	}
	text(b, a.left-8, y+4, "end", r.label())
	low, high := r.ends()
	line(b, a.at(low), y, a.at(high), y, colour, 2)
	fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", a.at(*r.Ratio), y, colour)
	if r.Goal != nil {
		line(b, a.at(max(*r.Goal, a.low)), y-6, a.at(max(*r.Goal, a.low)), y+6, "black", 1.5)
	}
	text(b, a.left+chartWidth+8, y+4, "start",
		fmt.Sprintf("%.4g  (%.3g / %.3g %s)", *r.Ratio, r.Value, *r.Baseline, r.Unit))
}

func line(b *bytes.Buffer, x1, y1, x2, y2 float64, colour string, width float64) {
	fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f"/>`+"\n",
		x1, y1, x2, y2, colour, width)
}

func text(b *bytes.Buffer, x, y float64, anchor, words string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(words))
}
