package plot

import (
	"fmt"
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// plot draws the figure: a row for each result, on a logarithmic axis. The labels
// are left of the plot's own area.
func (f figure) plot() *plot.Plot {
	p := plot.New()
	p.Title.Text, p.Title.Padding = f.title, vg.Points(8)
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, decades{}
	p.X.Min, p.X.Max = f.limits()
	p.HideY()
	p.Y.Min, p.Y.Max = -0.7, float64(len(f.rows))-0.3
	p.Add(marks{f.rows, f.ratios()})
	return p
}

// labelWidth is the width of the longest label.
func (f figure) labelWidth(p *plot.Plot) vg.Length {
	var width vg.Length
	for _, r := range f.rows {
		width = max(width, p.X.Tick.Label.Width(r.label))
	}
	return width
}

// limits are the ends of the axis: marks, spreads upward and goals fit, and there is room for
// the notes on the right.
func (f figure) limits() (low, high float64) {
	low, high = math.Inf(1), 0
	see := func(v float64) {
		if v > 0 {
			low, high = math.Min(low, v), math.Max(high, v)
		}
	}
	for _, r := range f.rows {
		see(r.value)
		see(r.high)
		if r.goal != nil {
			see(*r.goal)
		}
	}
	if high == 0 {
		return 0.1, 10
	}
	if f.ratios() {
		see(1)
	}
	width := math.Max(math.Log10(high/low), 1)
	return low / math.Pow(10, 0.08*width), high * math.Pow(10, 0.45*width)
}

// ratios reports whether 1 means something on the axis.
func (f figure) ratios() bool { return strings.Contains(f.name, "-ratios") }

// marks draws rows.
type marks struct {
	rows   []row
	ratios bool
}

// Plot implements plot.Plotter.
func (m marks) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	if m.ratios && p.X.Min < 1 && p.X.Max > 1 {
		c.StrokeLine2(line(color.Gray{Y: 170}, 0.8), x(1), c.Min.Y, x(1), c.Max.Y)
	}
	for i, r := range m.rows {
		at := y(float64(len(m.rows) - 1 - i))
		c.StrokeLine2(line(color.Gray{Y: 228}, 0.5), c.Min.X, at, c.Max.X, at)
		m.row(c, x, at, r, p)
	}
}

func (m marks) row(c draw.Canvas, x func(float64) vg.Length, at vg.Length, r row, p *plot.Plot) {
	in := func(v float64) vg.Length { return x(math.Min(math.Max(v, p.X.Min), p.X.Max)) }
	tone := colourNone
	if r.met != nil {
		tone = map[bool]color.RGBA{true: colourGood, false: colourBad}[*r.met]
	}
	low, high := in(r.low), in(r.high)
	c.StrokeLine2(line(tone, 2), low, at, high, at)
	c.DrawGlyph(draw.GlyphStyle{Color: tone, Radius: 3, Shape: draw.CircleGlyph{}}, vg.Point{X: in(r.value), Y: at})
	right := high
	if r.goal != nil {
		g := in(*r.goal)
		c.StrokeLine2(line(color.Black, 1.5), g, at-6, g, at+6)
		right = max(right, g)
	}
	style := text.Style{Color: color.Gray{Y: 60}, Font: p.X.Tick.Label.Font, YAlign: -0.35, Handler: p.TextHandler}
	c.FillText(style, vg.Point{X: right + 8, Y: at}, r.note)
	style.Color, style.XAlign = color.Black, -1
	c.FillText(style, vg.Point{X: c.Min.X - 8, Y: at}, r.label)
}

func line(tone color.Color, width float64) draw.LineStyle {
	return draw.LineStyle{Color: tone, Width: vg.Points(width)}
}

// decades marks 1, 2 and 5 of each power of ten, with plain numbers.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(low, high float64) []plot.Tick {
	var out []plot.Tick
	first, last := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	for e := first; e <= last; e++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, e)
			if v < low || v > high {
				continue
			}
			t := plot.Tick{Value: v}
			if m == 1 || last-first <= 3 {
				t.Label = plain(v)
			}
			out = append(out, t)
		}
	}
	return out
}

// even marks round numbers at equal distances.
type even struct{}

// Ticks implements plot.Ticker.
func (even) Ticks(low, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	for _, m := range []float64{5, 2} {
		if (high-low)/(m*step) >= 4 {
			step *= m
			break
		}
	}
	var out []plot.Tick
	for k := math.Ceil(low / step); k*step <= high; k++ {
		out = append(out, plot.Tick{Value: k * step, Label: strconv.FormatFloat(k*step, 'g', 4, 64)})
	}
	return out
}

func plain(v float64) string {
	if v >= 1e6 || v < 1e-4 {
		return fmt.Sprintf("%.0e", v)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
