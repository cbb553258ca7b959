package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRows(t *testing.T) {
	base := Row{Suite: "s", Case: "c", Metric: "m", Unit: "s"}
	good := base.Of(Samples{3, 1, 2}, Samples{2, 2, 2}, AtMost(1.5))
	if *good.Ratio != 1 || !*good.Met || good.Runs != 3 || good.Spread != 1 {
		t.Errorf("got %+v", good)
	}
	bad := base.Of(Samples{1, 3}, nil, AtMost(1.9))
	if bad.Value != 2 || *bad.Met || bad.Ratio != nil || *bad.Min != 1 || *bad.Max != 3 {
		t.Errorf("got %+v", bad)
	}
	open := base.Of(Samples{1}, Samples{2}, nil)
	if open.Met != nil || open.Goal != nil {
		t.Errorf("got %+v, want no goal", open)
	}
	if more := base.Of(Samples{9}, Samples{10}, AtLeast(0.9)); !*more.Met || *more.Goal != 0.9 {
		t.Errorf("got %+v, want a goal of 0.9 at least that is met", more)
	}
	if fast := base.Fastest(Samples{4, 2, 3}, Samples{5, 1}, AtMost(1.5)); fast.Value != 2 || *fast.Ratio != 2 ||
		*fast.Met || fast.Runs != 3 {
		t.Errorf("got %+v, want the ratio of the smallest", fast)
	}
	if idle := base.Of(Samples{1}, Samples{0}, nil); idle.Ratio != nil {
		t.Errorf("got %+v, want no ratio to nothing", idle)
	}
	if AllMet([]Row{good, bad}) || !AllMet([]Row{good, open}) {
		t.Error("AllMet is wrong")
	}
	skipped := base
	skipped.Skipped = "no disk"
	var b strings.Builder
	if err := Write(&b, []Row{good, open, skipped}, true); err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(b.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(l), &m); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"suite", "case", "metric", "value", "unit", "baseline", "ratio", "goal", "met",
			"runs", "spread"} {
			if _, ok := m[key]; !ok {
				t.Errorf("%q is missing in %s", key, l)
			}
		}
	}
	if again, err := Read(strings.NewReader(b.String()), "-"); err != nil ||
		!reflect.DeepEqual(again, []Row{good, open, skipped}) {
		t.Errorf("got %v, %v, want what was written", again, err)
	}
	b.Reset()
	if err := Write(&b, []Row{good, bad, skipped}, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"yes", "NO", "skipped: no disk"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("got\n%swant %q in it", b.String(), want)
		}
	}
}

// TestCompare: a change of speed that is even within a turn, and disturbances of fewer than half of the
// turns, leave the difference as it is.
func TestCompare(t *testing.T) {
	calls := 0
	way := func(more float64) func() (float64, error) {
		return func() (float64, error) {
			calls++
			v := 100 + more + float64(calls)/4 // slower and slower
			if calls/4%3 == 0 && calls%4 == 1 {
				v += 1000
			}
			return v, nil
		}
	}
	d, err := Compare(t.Context(), 5, 30, way(7), way(0))
	if err != nil {
		t.Fatal(err)
	}
	if d.More.Median() != 7 || len(d.More) != 5 || d.None.Median() != 0.75 || d.Theirs.Median() < 100 {
		t.Errorf("got %+v, want 5 of 7 more", d)
	}
	if calls != 6*30*4 {
		t.Errorf("%d calls, want those of a stretch that warms up, too", calls)
	}
	failed := errors.New("lost")
	if _, err := Compare(t.Context(), 1, 1, way(0), func() (float64, error) { return 0, failed }); err != failed {
		t.Errorf("got %v, want %v", err, failed)
	}
}

// TestRepeat: the first call warms up and is not counted, and the ways take turns.
func TestRepeat(t *testing.T) {
	calls := 0.0
	set, err := Repeat(t.Context(), 2, func(s Set) error {
		s.Add("call", calls)
		calls++
		return nil
	})
	if want := (Set{"call": {1, 2}}); err != nil || !reflect.DeepEqual(set, want) {
		t.Errorf("got %v, %v, want %v", set, err, want)
	}
	calls = 0
	way := func() (float64, error) { calls++; return calls, nil }
	got, err := InTurn(t.Context(), 2, way, way)
	if want := []Samples{{3, 5}, {4, 6}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := InTurn(ctx, 1, way); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the interruption", err)
	}
	broken := errors.New("broken")
	if _, err := Repeat(t.Context(), 1, func(Set) error { return broken }); err != broken {
		t.Errorf("got %v, want what failed", err)
	}
}

// TestBudget: what does not fit is a row that says so; without a budget all does.
func TestBudget(t *testing.T) {
	r := &Runner{}
	if r.Start("s", 1); r.Late("c", "m") || len(r.Rows) != 0 || !r.Until(2).IsZero() {
		t.Errorf("late without a budget: %+v", r.Rows)
	}
	r.Budget = 1 // ns
	if at := r.Until(2); !r.Late("c", "m") || time.Until(at) > 0 {
		t.Error("a budget of 1 ns is not spent")
	}
	if row := r.Rows[0]; row.Suite != "s" || row.Case != "c" || row.Metric != "m" ||
		!strings.Contains(row.Skipped, "--time") {
		t.Errorf("got %+v, want a row with the remedy", row)
	}
}

func TestSteps(t *testing.T) {
	var said []string
	r := &Runner{Note: func(step string, total int) { said = append(said, fmt.Sprint(step, " of ", total)) }}
	r.Start("s", 3)
	r.Step("case %d", 1)
	if want := []string{"case 1 of 3"}; !slices.Equal(said, want) {
		t.Errorf("got %q, want %q", said, want)
	}
}

// TestNoise: the noise of the machine is that of the baselines, without those few of
// many that went wrong.
func TestNoise(t *testing.T) {
	quiet := Row{}.Of(Samples{1, 9, 1}, Samples{1, 1.1, 0.9}, nil)
	loud := Row{}.Of(Samples{1, 1, 1}, Samples{1, 2, 1}, nil)
	many := Row{}.Of(Samples{1}, Samples{1, 1, 1, 1, 1, 1, 9, 1}, nil)
	if got := Noise([]Row{quiet, many, Row{}.Of(Samples{1, 9}, nil, nil)}); got != "" {
		t.Errorf("got %q of quiet baselines", got)
	}
	if got := Noise([]Row{quiet, loud}); !strings.Contains(got, "1 of 2 figures") {
		t.Errorf("got %q, want 1 of 2", got)
	}
}

// TestRaw: the baseline writes all bytes, of several blocks, and reads any of them
// back; a file that is too short is an error.
func TestRaw(t *testing.T) {
	name := filepath.Join(t.TempDir(), "raw")
	data := make([]byte, 2*rawBlock+5)
	for i := range data {
		data[i] = byte(i % 251)
	}
	if err := WriteSync(name, data); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, rawBlock+7)
	if err := ReadInto(got, name, 3); err != nil || !bytes.Equal(got, data[3:3+len(got)]) {
		t.Errorf("other bytes than were written (%v)", err)
	}
	if err := ReadInto(got, name, int64(len(data)-len(got)+1)); !errors.Is(err, io.EOF) {
		t.Errorf("past the end: got %v", err)
	}
}
