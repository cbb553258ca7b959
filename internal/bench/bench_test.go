package bench

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	base := Line{Suite: "s", Case: "c", Metric: "m", Unit: "s"}
	good := Against(base, Samples{3, 1, 2}, Samples{2, 2, 2}, 1.5)
	if *good.Ratio != 1 || !*good.Met || good.Runs != 3 || good.Spread != 1 {
		t.Errorf("got %+v", good)
	}
	bad := Alone(base, Samples{1, 3}, 1.9)
	if bad.Value != 2 || *bad.Met || bad.Ratio != nil {
		t.Errorf("got %+v", bad)
	}
	open := Against(base, Samples{1}, Samples{2}, 0)
	if open.Met != nil || open.Goal != nil {
		t.Errorf("got %+v, want no goal", open)
	}
	if AllMet([]Line{good, bad}) || !AllMet([]Line{good, open}) {
		t.Error("AllMet is wrong")
	}
	var b strings.Builder
	if err := Write(&b, []Line{good, open, Skip(base, errors.New("no disk"))}, true); err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(b.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(l), &m); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"suite", "case", "metric", "value", "unit", "baseline", "ratio", "goal", "met", "runs", "spread"} {
			if _, ok := m[key]; !ok {
				t.Errorf("%q is missing in %s", key, l)
			}
		}
	}
	b.Reset()
	if err := Write(&b, []Line{good, bad, Skip(base, errors.New("no disk"))}, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"yes", "NO", "skipped: no disk"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("got\n%swant %q in it", b.String(), want)
		}
	}
}
