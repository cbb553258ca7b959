// Package plot draws the results of `holdfast bench` as SVG and PNG.
package plot

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	_ "gonum.org/v1/plot/vg/vgimg" // PNG
	_ "gonum.org/v1/plot/vg/vgsvg" // SVG

	"github.com/holdfast-hpc/holdfast/internal/bench"
)

// Colours that can be told apart in print and by colour-blind readers (Okabe and Ito).
var (
	colourGood = color.RGBA{R: 0, G: 114, B: 178, A: 255}
	colourBad  = color.RGBA{R: 213, G: 94, B: 0, A: 255}
	colourNone = color.RGBA{R: 110, G: 110, B: 110, A: 255}
	colours    = []color.Color{colourGood, colourBad, color.RGBA{R: 0, G: 158, B: 115, A: 255},
		color.RGBA{R: 204, G: 121, B: 167, A: 255}, color.RGBA{R: 230, G: 159, B: 0, A: 255}}
)

// mostRows is the number of results up to which they share a figure; with more, each case has a
// figure.
const mostRows = 34

// Write draws rows as figures in the existing directory dir and returns the files. There is one
// figure of ratios and one for each unit of values without a baseline, or one for each case if
// these get too long. Run times by command window become curves.
func Write(dir string, rows []bench.Row) ([]string, error) {
	var files []string
	for _, f := range figures(rows) {
		p := f.plot()
		m := margins{left: f.labelWidth(p) + vg.Points(14), right: vg.Points(10), bottom: vg.Points(18),
			caption: f.axis}
		height := vg.Length(len(f.rows))*0.24*vg.Inch + 1.3*vg.Inch
		names, err := save(p, m.left+7*vg.Inch, height, m, filepath.Join(dir, f.name))
		files = append(files, names...)
		if err != nil {
			return files, err
		}
	}
	curves, err := windows(dir, rows)
	return append(files, curves...), err
}

// margins are beside a plot's own drawing. The caption stands in the bottom one:
// gonum makes the drawing smaller for one of its own on a logarithmic axis.
type margins struct {
	left, right, bottom vg.Length
	caption             string
}

// Save writes a plot of curves as NAME.svg and NAME.png and returns the files.
func Save(p *plot.Plot, name string) ([]string, error) {
	return save(p, 8*vg.Inch, 4.5*vg.Inch, margins{right: vg.Points(16)}, name)
}

func save(p *plot.Plot, width, height vg.Length, m margins, name string) ([]string, error) {
	var files []string
	for _, format := range []string{"svg", "png"} {
		c, err := draw.NewFormattedCanvas(width, height, format)
		if err != nil {
			return files, fmt.Errorf("plot: %w", err)
		}
		whole := draw.New(c)
		whole.SetColor(color.White)
		whole.Fill(whole.Rectangle.Path())
		if m.caption != "" {
			style := p.X.Label.TextStyle
			style.XAlign, style.YAlign = -0.5, 0
			whole.FillText(style, vg.Point{X: (m.left + width - m.right) / 2, Y: whole.Min.Y + 5}, m.caption)
		}
		p.Draw(draw.Crop(whole, m.left, -m.right, m.bottom+4, -4))
		file := name + "." + format
		if err := write(file, c); err != nil {
			return files, err
		}
		files = append(files, file)
	}
	return files, nil
}

func write(name string, c io.WriterTo) error {
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return fmt.Errorf("plot %s: %w", name, err)
	}
	drawn := b.Bytes()
	if filepath.Ext(name) == ".svg" {
		drawn = holdWidths(drawn)
	}
	if err := os.WriteFile(name, drawn, 0o666); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return nil
}

// svgText is a text as gonum writes it: the rest of the style, the size and the text.
var svgText = regexp.MustCompile(
	`style="font-family:Liberation Serif;([^"]*font-size:([0-9.]+)px[^"]*)">([^<]*)</text>`)

// holdWidths fixes the width of the texts of an SVG, so that they fit in whatever font the reader
// has.
func holdWidths(svg []byte) []byte {
	return svgText.ReplaceAllFunc(svg, func(text []byte) []byte {
		m := svgText.FindSubmatch(text)
		size, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			return text
		}
		face := font.DefaultCache.Lookup(plot.DefaultFont, vg.Points(size))
		width := face.Width(html.UnescapeString(string(m[3]))).Points()
		return fmt.Appendf(nil,
			`textLength="%.2f" lengthAdjust="spacingAndGlyphs" `+
				`style="font-family:Liberation Serif,Times New Roman,Times,serif;%s">%s</text>`,
			width, m[1], m[3])
	})
}

// A figure is a list of rows with one mark each.
type figure struct {
	name, title, axis string
	rows              []row
}

// A row is one result.
type row struct {
	label, note string
	value       float64
	low, high   float64 // of the runs
	goal        *float64
	met         *bool
}

// figures sorts rows into figures.
func figures(rows []bench.Row) []figure {
	var out []figure
	add := func(f figure, r row) {
		i := slices.IndexFunc(out, func(g figure) bool { return g.name == f.name })
		if i < 0 {
			i, out = len(out), append(out, f)
		}
		out[i].rows = append(out[i].rows, r)
	}
	count := map[string]int{}
	for _, l := range rows {
		count[kindOf(l)]++
	}
	for _, l := range rows {
		if l.Skipped != "" {
			continue
		}
		kind := kindOf(l)
		f := figure{name: kind, title: "holdfast bench " + l.Suite, axis: axisOf(l)}
		r := rowOf(l)
		if count[kind] > mostRows {
			f.name, f.title = kind+"-"+slug(l.Case), f.title+": "+l.Case
		} else {
			r.label = l.Case + ": " + l.Metric
		}
		add(f, r)
	}
	return out
}

// kindOf is the name of a figure that has all lines like this one.
func kindOf(l bench.Row) string {
	if l.Ratio != nil {
		return l.Suite + "-ratios"
	}
	if l.Unit == "" {
		return l.Suite + "-values"
	}
	return l.Suite + "-" + slug(l.Unit)
}

func axisOf(l bench.Row) string {
	text := "ratio to the baseline in the same run"
	if l.Ratio == nil {
		text = l.Unit
	}
	return text + "   (bar: range of the runs, dot: value;  | goal;  blue: met, orange: not met)"
}

func rowOf(l bench.Row) row {
	r := row{label: l.Metric, value: l.Value, goal: l.Goal, met: l.Met}
	r.low, r.high = l.Value*(1-l.Spread/2), l.Value*(1+l.Spread/2) // old results have no extremes
	if l.Min != nil && l.Max != nil {
		r.low, r.high = *l.Min, *l.Max
	}
	r.note = fmt.Sprintf("%.4g", l.Value)
	if l.Ratio != nil {
		r.value, r.low, r.high = *l.Ratio, r.low / *l.Baseline, r.high / *l.Baseline
		r.note = fmt.Sprintf("%.4g  (%.3g / %.3g %s)", *l.Ratio, l.Value, *l.Baseline, l.Unit)
	}
	return r
}

// slug is a text as part of a file name.
func slug(text string) string {
	parts := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(slices.Compact(parts), "-")
}
