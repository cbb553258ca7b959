package appbench

import (
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/bench"
)

// TestArmedLine: what arming costs is judged only beyond the noise.
func TestArmedLine(t *testing.T) {
	line := func(metric string) bench.Line { return bench.Line{Metric: metric} }
	for _, c := range []struct {
		name           string
		armed, without bench.Samples
		want           string
	}{
		{"quiet, cheap", bench.Samples{1.001, 1.002}, bench.Samples{1, 1.001}, "met"},
		{"quiet, dear", bench.Samples{1.02, 1.021}, bench.Samples{1, 1.001}, "missed"},
		{"noisy, perhaps dear", bench.Samples{1.02, 1.1}, bench.Samples{1, 1.3}, "unknown"},
		{"noisy, but far off", bench.Samples{2, 2.1}, bench.Samples{1, 1.3}, "missed"},
		{"one run", bench.Samples{1.2}, bench.Samples{1}, "unknown"},
	} {
		l := (&measured{armed: c.armed, without: c.without}).armedLine(line)
		got := "unknown"
		if l.Met != nil {
			got = map[bool]string{true: "met", false: "missed"}[*l.Met]
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s (%+v)", c.name, got, c.want, l)
		}
	}
}

// TestExtra: a checkpoint costs what a run gets longer, and what the program waits
// at least; the Daly interval and the time between failures it is right for agree.
func TestExtra(t *testing.T) {
	m := &measured{suite: &suite{o: Options{MTBF: 24 * time.Hour}}, armed: bench.Samples{10, 11},
		checkpointed: bench.Samples{10.8, 12}, taken: 4, blocked: bench.Samples{0.05}}
	if got := m.extra(); got < 0.199 || got > 0.201 {
		t.Errorf("got %v, want 0.2", got)
	}
	m.checkpointed = bench.Samples{9, 9}
	if got := m.extra(); got != 0.05 {
		t.Errorf("a run that was faster: got %v, want the wait", got)
	}
	back := m.optimal(m.daly())
	if ratio := back.Hours() / 24; ratio < 0.99 || ratio > 1.01 {
		t.Errorf("the interval for 24 h is right for %v", back)
	}
}

func TestReversed(t *testing.T) {
	if got := reversed(4); got != "3,2,1,0" {
		t.Errorf("got %s", got)
	}
}
