package apps

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
)

// TestArmedRow: what arming costs is judged only where the noise allows it.
func TestArmedRow(t *testing.T) {
	drift := bench.Samples{1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8} // seconds without the library
	with := func(ratios ...float64) (armed bench.Samples) {
		for i, r := range ratios {
			armed = append(armed, drift[i]*r)
		}
		return armed
	}
	for _, c := range []struct {
		name  string
		armed bench.Samples
		want  string
	}{
		{"quiet beside drift, cheap", with(1.001, 1.002, 0.999, 1.001, 1, 1.002), "met"},
		{"quiet, dear", with(1.02, 1.021, 1.019, 1.02, 1.018, 1.02), "missed"},
		{"noisy", with(1.02, 0.9, 1.1, 0.95, 1.04, 1.001), "unknown"},
		{"one pair disturbed, of nine", with(1.001, 1.002, 0.999, 1.9, 1, 1.002, 1.001, 1, 1.001), "met"},
		{"noisy, but far off", with(2, 2.1, 1.5, 1.8, 1.7, 2), "missed"},
		{"few pairs", with(1.2, 1.2, 1.2), "unknown"},
	} {
		l := (&measured{suite: &suite{}, armed: c.armed, without: drift[:len(c.armed)]}).armedRow()
		got := "unknown"
		if l.Met != nil {
			got = map[bool]string{true: "met", false: "missed"}[*l.Met]
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s (%+v)", c.name, got, c.want, l)
		}
	}
}

// TestSignTest holds the interval's ends against the usual table of critical values
// of the two-sided sign test at 5 %.
func TestSignTest(t *testing.T) {
	for n, want := range map[int]int{1: -1, 5: -1, 6: 0, 8: 0, 9: 1, 11: 1, 12: 2, 15: 3, 20: 5, 25: 7, 40: 13} {
		got, ok := signTest(n)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%d values: %d may be left out at each end, want %d", n, got, want)
		}
	}
}

// TestRound: the ways that are compared are run in turn, in both orders, and only
// what was asked for.
func TestRound(t *testing.T) {
	for _, c := range []struct {
		cases []string
		want  [2]int // steps of the first and of further rounds
	}{
		{nil, [2]int{2 + 2, 2 + 2}},
		{[]string{"armed"}, [2]int{2, 2}},
		{[]string{"restart"}, [2]int{2, 1}},
		{[]string{"checkpoint"}, [2]int{2, 2}},
	} {
		m := &measured{suite: &suite{o: Options{Cases: c.cases}}}
		for i, want := range c.want {
			if got := len(m.round(i)); got != want {
				t.Errorf("%v, round %d: %d steps, want %d", c.cases, i, got, want)
			}
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

// TestOnlyChosen: the applications that are not asked for need not be there.
func TestOnlyChosen(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "nbody"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := prepare(Options{Apps: []string{"nbody"}, BinDir: bin, Dir: t.TempDir(), MPI: "none"}); err == nil ||
		strings.Contains(err.Error(), "no application") {
		t.Errorf("got %v, want it to come as far as the MPI library that is not there", err)
	}
	if _, err := prepare(Options{BinDir: bin}); err == nil || !strings.Contains(err.Error(), "no application matmul") {
		t.Errorf("all of them: got %v, want matmul to be missed", err)
	}
}

// optimal returns the time between failures for which an interval is the right one:
// Young's formula, solved for it.
func (m *measured) optimal(interval time.Duration) time.Duration {
	return time.Duration(math.Pow(interval.Seconds(), 2) / (2 * m.blocked.Median()) * float64(time.Second))
}
