package plot

import (
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/bench"
)

func against(suite, name, metric string, value, base float64, goal bench.Goal) bench.Row {
	return bench.Row{Suite: suite, Case: name, Metric: metric, Unit: "s"}.Of(bench.Samples{value}, bench.Samples{base},
		goal)
}

// TestFigures: ratios and values have figures of their own, long ones are split
// by case, and what was skipped is in none.
func TestFigures(t *testing.T) {
	lines := []bench.Row{
		against("x", "a", "first", 1, 2, bench.AtMost(1)), against("x", "b", "second", 0, 2, nil),
		bench.Row{Suite: "x", Case: "a", Metric: "rate", Unit: "GB/s"}.Of(bench.Samples{3, 4}, nil, nil),
		{Suite: "x", Case: "a", Metric: "not here", Unit: "h", Skipped: "not there"},
	}
	got := map[string]int{}
	for _, f := range figures(lines) {
		got[f.name] = len(f.rows)
	}
	if want := map[string]int{"x-ratios": 2, "x-gb-s": 1}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got figures %v, want %v", got, want)
	}
	for i := range mostRows {
		lines = append(lines, against("x", "Case C", fmt.Sprint(i), 1, 2, nil))
	}
	got = map[string]int{}
	for _, f := range figures(lines) {
		got[f.name] = len(f.rows)
	}
	want := map[string]int{"x-ratios-a": 1, "x-ratios-b": 1, "x-ratios-case-c": mostRows, "x-gb-s": 1}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got figures %v, want %v", got, want)
	}
}

// TestWrite: every figure becomes a PNG that can be decoded and an SVG with the
// labels in it, also with nothing but zeros.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	lines := []bench.Row{
		against("x", "a", "one label", 1, 2, bench.AtMost(1)), against("z", "a", "nothing", 0, 1, nil),
		against("w", "prog", "command window 5 / none", 2, 1, nil), against("w", "prog", "command window 20 / none",
			1.1, 1, nil),
	}
	files, err := Write(dir, lines)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 8 {
		t.Errorf("got %q, want 8 files", files)
	}
	for _, name := range files {
		raw, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(name) == ".png" {
			if _, err := png.Decode(raw); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		raw.Close()
	}
	svg, err := os.ReadFile(filepath.Join(dir, "x-ratios.svg"))
	if err != nil || !strings.Contains(string(svg), "one label") {
		t.Errorf("no label in the SVG: %v", err)
	}
	// Readers that lack the font take another, which may be wider.
	if texts, held := strings.Count(string(svg), "<text"), strings.Count(string(svg), "textLength="); texts == 0 ||
		held != texts {
		t.Errorf("%d of %d texts in the SVG have a width:\n%s", held, texts, svg)
	}
}

func TestTicks(t *testing.T) {
	var got []string
	for _, k := range (decades{}).Ticks(0.4, 30) {
		got = append(got, k.Label)
	}
	if want := "0.5 1 2 5 10 20"; strings.Join(got, " ") != want {
		t.Errorf("decades: got %q, want %q", got, want)
	}
	got = nil
	for _, k := range (even{}).Ticks(0, 2.1) {
		got = append(got, k.Label)
	}
	if want := "0 0.5 1 1.5 2"; strings.Join(got, " ") != want {
		t.Errorf("even: got %q, want %q", got, want)
	}
}
