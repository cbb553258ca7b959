package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/units"
)

// The charts are drawn here rather than by the page's script: they need nothing
// but what the tables say, and show without it. A library saves little: with uPlot
// these lines became 74 of script and 53 kB in every page, the bars and spans still
// our own, and the charts gone from a page without script and from mail.

const (
	chartWidth, chartHeight = 640.0, 250.0
	chartLeft, chartBottom  = 62.0, 26.0
	chartTop                = 10.0
	mostBars                = 160 // epochs in a chart; the newest
)

// chart is the frame of a picture over the epochs.
type chart struct {
	b      strings.Builder
	epochs []Epoch
	all    int     // epochs that there are
	top    float64 // value at the upper edge
}

func newChart(all []Epoch, highest func(*Epoch) float64) *chart {
	c := &chart{}
	for i := range all {
		if highest(&all[i]) > 0 {
			c.epochs = append(c.epochs, all[i])
		}
	}
	c.all = len(c.epochs)
	c.epochs = c.epochs[max(0, c.all-mostBars):]
	for i := range c.epochs {
		c.top = max(c.top, highest(&c.epochs[i]))
	}
	fmt.Fprintf(&c.b, `<svg viewBox="0 0 %.0f %.0f" role="img">`, chartWidth, chartHeight)
	return c
}

func (c *chart) slot() float64 { return (chartWidth - chartLeft - 8) / float64(max(len(c.epochs), 1)) }

func (c *chart) x(i int) float64 { return chartLeft + (float64(i)+0.5)*c.slot() }

func (c *chart) y(v float64) float64 {
	return chartHeight - chartBottom - v/c.top*(chartHeight-chartBottom-chartTop)
}

// axes draws the frame: a scale of round values and the numbers of the epochs.
func (c *chart) axes(step float64, label func(float64) string) {
	for v := 0.0; v <= c.top*1.0001; v += step {
		fmt.Fprintf(&c.b,
			`<line class="gr" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`+
				`<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`,
			chartLeft, chartWidth-8, c.y(v), c.y(v), chartLeft-7, c.y(v)+4, html.EscapeString(label(v)))
	}
	every := int(math.Ceil(34 / c.slot()))
	for i := range c.epochs {
		if i%every == 0 {
			fmt.Fprintf(&c.b, `<text x="%.1f" y="%.1f" text-anchor="middle">%d</text>`, c.x(i), chartHeight-9,
				c.epochs[i].Epoch)
		}
	}
	fmt.Fprintf(&c.b, `<line class="ax" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, chartLeft, chartWidth-8, c.y(0),
		c.y(0))
}

func (c *chart) done() template.HTML {
	c.b.WriteString("</svg>")
	if c.all > len(c.epochs) {
		fmt.Fprintf(&c.b, `<p class="soft">the newest %d of %d epochs</p>`, len(c.epochs), c.all)
	}
	return template.HTML(c.b.String())
}

// storageChart shows the bytes of each epoch at each level.
func (r *Report) storageChart() template.HTML {
	c := newChart(r.Epochs, func(q *Epoch) float64 {
		most := q.Bytes
		for _, n := range q.Stored {
			most = max(most, n)
		}
		return float64(most)
	})
	if len(c.epochs) == 0 {
		return `<p class="soft">nothing was written</p>`
	}
	c.axes(byteStep(c.top), func(v float64) string { return units.Bytes(int64(v)) })
	n := float64(max(len(r.Levels), 1))
	wide := min(c.slot()*0.8, 90)
	for i, q := range c.epochs {
		left := c.x(i) - wide/2
		for j, level := range r.Levels {
			v := float64(q.Stored[level])
			x := left + float64(j)*wide/n
			fmt.Fprintf(&c.b,
				`<rect class="lv-%s" x="%.2f" y="%.2f" width="%.2f" height="%.2f">`+
					`<title>epoch %d at %s: %s</title></rect>`,
				html.EscapeString(level), x, c.y(v), max(wide/n-0.6, 0.6), c.y(0)-c.y(v), q.Epoch,
				html.EscapeString(level), units.Bytes(q.Stored[level]))
		}
		fmt.Fprintf(&c.b,
			`<line class="raw" x1="%.2f" x2="%.2f" y1="%.2f" y2="%.2f"><title>epoch %d: %s of state</title></line>`,
			left-1, left+wide+1, c.y(float64(q.Bytes)), c.y(float64(q.Bytes)), q.Epoch, units.Bytes(q.Bytes))
	}
	return c.done()
}

// blockedChart shows how long each epoch blocked the ranks.
func (r *Report) blockedChart() template.HTML {
	c := newChart(r.Epochs, func(q *Epoch) float64 { return q.Blocked.Max })
	if len(c.epochs) == 0 {
		return `<p class="soft">no checkpoint reached its cut</p>`
	}
	c.axes(roundStep(c.top), durText)
	for i, q := range c.epochs {
		fmt.Fprintf(&c.b,
			`<line class="span" x1="%.2f" x2="%.2f" y1="%.2f" y2="%.2f"/>`+
				`<circle class="dot" cx="%.2f" cy="%.2f" r="3.5">`+
				`<title>epoch %d: %s to %s, median %s; longest on rank %d</title></circle>`,
			c.x(i), c.x(i), c.y(q.Blocked.Min), c.y(q.Blocked.Max), c.x(i), c.y(q.Blocked.Median),
			q.Epoch, durText(q.Blocked.Min), durText(q.Blocked.Max), durText(q.Blocked.Median), q.Blocked.Slowest)
	}
	return c.done()
}

// roundStep divides a scale into four to ten round parts.
func roundStep(top float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(top)))
	switch f := top / p; {
	case f < 2:
		return p / 4
	case f < 5:
		return p / 2
	}
	return p
}

// byteStep is roundStep in powers of two.
func byteStep(top float64) float64 {
	return max(1, math.Pow(2, math.Floor(math.Log2(top))-2))
}
