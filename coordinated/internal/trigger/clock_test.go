package trigger

import (
	"testing"
	"time"
)

func TestClockOrder(t *testing.T) {
	start := time.Unix(1000, 0)
	tr := (&clock{interval: 10 * time.Second, final: start.Add(25 * time.Second)}).start(start)
	type ask struct {
		at   time.Duration
		stop bool
	}
	var got []ask
	for now := start; now.Before(start.Add(2 * time.Minute)); now = now.Add(time.Second) {
		if yes, stop := tr.due(now); yes {
			got = append(got, ask{now.Sub(start), stop})
			if !stop {
				tr.plan(now.Add(time.Second), 0) // it takes a second
			}
		}
	}
	want := []ask{{10 * time.Second, false}, {21 * time.Second, false}, {25 * time.Second, true}}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}
