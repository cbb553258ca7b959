package job

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// at returns a Progress whose clock reads *now.
func at(w *bytes.Buffer, now *time.Time, bar bool) *Progress {
	return &Progress{w: w, name: "app", total: 100, bar: bar, every: time.Second,
		now: func() time.Time { return *now }}
}

func TestProgressLines(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	p := at(&out, &now, false)
	p.Step(0)
	p.Step(1) // too soon
	now = now.Add(2 * time.Second)
	p.Step(20)
	p.Step(100) // the end is always said
	p.Done()
	const want = "app: step 0 of 100\napp: step 20 of 100\napp: step 100 of 100\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestProgressQuiet: without a terminal, short runs print nothing and long ones a line a
// minute; the times are taken all the same.
func TestProgressQuiet(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	p := at(&out, &now, false)
	p.every, p.quiet, p.times = time.Minute, true, &Times{}
	p.Step(0)
	now = now.Add(59 * time.Second)
	p.Step(50)
	if out.Len() > 0 {
		t.Errorf("got %q in the first minute, want nothing", out.String())
	}
	now = now.Add(2 * time.Second)
	p.Step(51)
	p.Step(100)
	if want := "app: step 51 of 100\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if p.times.Last != 100 || p.times.Loop != 61 {
		t.Errorf("got %+v, want the last step and 61 s", *p.times)
	}
}

// TestProgressAfterRestart: the rate counts only the steps of this start.
func TestProgressAfterRestart(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	p := at(&out, &now, true)
	p.Step(60)
	now = now.Add(10 * time.Second)
	p.Step(80) // 2 steps a second, 20 left
	if !strings.Contains(out.String(), "80/100 ETA 10s") {
		t.Errorf("got %q, want an ETA of 10s", out.String())
	}
	p.Done()
	if !strings.HasSuffix(out.String(), "\n") {
		t.Errorf("got %q, want the line of the bar ended", out.String())
	}
}

func TestProgressModes(t *testing.T) {
	if p, err := NewProgress("app", "off", 10); p == nil || !p.off || err != nil {
		t.Errorf("off: got %v, %v, want nothing shown", p, err)
	}
	if p, err := NewProgress("app", "lines", 10); p == nil || p.bar || err != nil {
		t.Errorf("lines: got %v, %v, want lines", p, err)
	}
	var none *Progress
	none.Step(1)
	none.Done()
	if _, err := NewProgress("app", "loud", 10); err == nil {
		t.Error("got no error for an unknown mode")
	}
}
