package bench

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestChart: rows with a ratio are marks of an SVG with their labels, others are left out.
func TestChart(t *testing.T) {
	row := Row{Suite: "x", Case: "a < b", Unit: "s"}
	named := func(metric string) Row { row.Metric = metric; return row }
	svg := string(Chart([]Row{
		named("good").Of(Samples{1, 1.2}, Samples{2}, AtMost(1)), named("bad").Of(Samples{9}, Samples{2}, AtMost(1)),
		named("zero").Of(Samples{0}, Samples{2}, nil), named("value").Of(Samples{3}, nil, nil),
		named("skipped"),
	}))
	for _, want := range []string{"a &lt; b: good", "a &lt; b: bad", "#0072b2", "#d55e00", "0.55  (1.1 / 2 s)"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q in the chart:\n%s", want, svg)
		}
	}
	if n := strings.Count(svg, "<circle"); n != 2 {
		t.Errorf("got %d marks, want 2", n)
	}
	if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Errorf("not a place in the chart:\n%s", svg)
	}
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if got := Chart([]Row{named("value").Of(Samples{3}, nil, nil)}); got != nil {
		t.Errorf("got a chart without ratios:\n%s", got)
	}
}
