package job

import (
	"bytes"
	"testing"
	"time"
)

// TestProgress: there is a line in each span of time, and one at the end; the times are of this start's steps.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	p := &Progress{w: &out, name: "app", total: 100, every: time.Minute, times: &Times{},
		now: func() time.Time { return now }}
	p.Step(40)
	now = now.Add(59 * time.Second)
	p.Step(50) // too soon
	now = now.Add(2 * time.Second)
	p.Step(51)
	p.Step(100)
	if want := "app: step 51 of 100\napp: step 100 of 100\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if p.times.First != 40 || p.times.Last != 100 || p.times.Loop != 61 {
		t.Errorf("got %+v, want steps 40 to 100 and 61 s", *p.times)
	}
}

func TestProgressOff(t *testing.T) {
	var out bytes.Buffer
	p := &Progress{w: &out, total: 1, times: &Times{}, now: time.Now}
	p.Step(0)
	p.Step(1)
	(*Progress)(nil).Step(1)
	if out.Len() > 0 {
		t.Errorf("got %q, want nothing", out.String())
	}
}
