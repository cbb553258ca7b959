package persist

import (
	"testing"
	"time"
)

// TestEnough: the edges of the decision whether a final epoch goes further out.
func TestEnough(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name   string
		ranks  []budget
		usable time.Duration
		ok     bool
	}{
		{"just enough", []budget{{Left: 10 * s, Need: 9 * s}}, 9 * s, true},
		{"a moment too short", []budget{{Left: 10 * s, Need: 9*s + 1}}, 9 * s, false},
		{"never measured", []budget{{Left: 10 * s}}, 9 * s, true},
		{"nothing left", []budget{{Left: -1}}, -300*time.Millisecond - 1, false},
		{"all of it is for leaving", []budget{{Left: 300 * time.Millisecond}}, 0, false},
		{"hardly any", []budget{{Left: 300*time.Millisecond + 1}}, 1, true},
		{"plenty", []budget{{Left: time.Hour, Need: time.Hour - 5*s}}, time.Hour - 5*s, true},
		{"the epoch before is on its way", []budget{{Left: 10 * s}, {Left: 10 * s, Behind: true}}, 9 * s, false},
		{"the slowest rank and the earliest end", []budget{{Left: 20 * s, Need: 10 * s}, {Left: 10 * s, Need: s}},
			9 * s, false},
		{"not all ranks know the end", []budget{{Need: 5 * s}, {Left: 10 * s, Need: 5 * s}, {}}, 9 * s, true},
	} {
		if usable, ok := worst(c.ranks).enough(); usable != c.usable || ok != c.ok {
			t.Errorf("%s: got %t with %v, want %t with %v", c.name, ok, usable, c.ok, c.usable)
		}
	}
}

// TestPatience: a final epoch that has waited for the one before it, and for that one to give
// way, still has time for its own copying.
func TestPatience(t *testing.T) {
	for _, left := range []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour} {
		usable := left - reserve(left)
		for _, need := range []time.Duration{usable / 10, usable / 2, usable - givingWay, usable - givingWay/2} {
			if need <= 0 {
				continue
			}
			waited := patience(usable, need)
			if waited > 0 {
				waited += givingWay
			}
			if _, ok := (budget{Left: left - waited, Need: need}).enough(); !ok {
				t.Errorf("%v left, %v needed: after %v there is no time for the copy any more", left, need, waited)
			}
		}
	}
}
