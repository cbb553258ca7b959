package persist

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
)

// TestEnough: the edges of the decision whether a final epoch goes further out.
func TestEnough(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name   string
		ranks  []Budget
		usable time.Duration
		ok     bool
	}{
		{"just enough", []Budget{{Left: 10 * s, Need: 9 * s}}, 9 * s, true},
		{"a moment too short", []Budget{{Left: 10 * s, Need: 9*s + 1}}, 9 * s, false},
		{"never measured", []Budget{{Left: 10 * s}}, 9 * s, true},
		{"nothing left", []Budget{{Left: -1}}, -300*time.Millisecond - 1, false},
		{"all of it is for leaving", []Budget{{Left: 300 * time.Millisecond}}, 0, false},
		{"hardly any", []Budget{{Left: 300*time.Millisecond + 1}}, 1, true},
		{"plenty", []Budget{{Left: time.Hour, Need: time.Hour - 5*s}}, time.Hour - 5*s, true},
		{"the epoch before is on its way", []Budget{{Left: 10 * s}, {Left: 10 * s, Behind: true}}, 9 * s, false},
		{"the slowest rank and the earliest end", []Budget{{Left: 20 * s, Need: 10 * s}, {Left: 10 * s, Need: s}},
			9 * s, false},
		{"not all ranks know the end", []Budget{{Need: 5 * s}, {Left: 10 * s, Need: 5 * s}, {}}, 9 * s, true},
	} {
		var blobs []cut.Blob
		for i, b := range c.ranks {
			data, err := json.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			blobs = append(blobs, cut.Blob{Rank: i, Data: data})
		}
		all, err := Worst(blobs)
		if err != nil {
			t.Fatal(err)
		}
		if usable, ok := all.Enough(); usable != c.usable || ok != c.ok {
			t.Errorf("%s: got %t with %v, want %t with %v", c.name, ok, usable, c.ok, c.usable)
		}
	}
}

// TestPatience: a final epoch that has waited for the one before it, and for that one to give
// way, still has time for its own copying.
func TestPatience(t *testing.T) {
	for _, left := range []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour} {
		usable := left - KeepBack(left)
		for _, need := range []time.Duration{usable / 10, usable / 2, usable - GivingWay, usable - GivingWay/2} {
			if need <= 0 {
				continue
			}
			waited := Patience(usable, need)
			if waited > 0 {
				waited += GivingWay
			}
			if _, ok := (Budget{Left: left - waited, Need: need}).Enough(); !ok {
				t.Errorf("%v left, %v needed: after %v there is no time for the copy any more", left, need, waited)
			}
		}
	}
}
