package main

import (
	"testing"
	"time"
)

// TestSteps: how far it is and what is to go where that is known, the step alone where not.
func TestSteps(t *testing.T) {
	for total, want := range map[int]string{0: "3s: two", 4: "1 of 4, 3s, 9.0 s to go: two"} {
		s := &stepper{begun: time.Unix(10, 0)}
		s.begin("one", total)
		s.begin("two", total)
		if got := s.text(time.Unix(13, 0)); got != want {
			t.Errorf("total %d: got %q, want %q", total, got, want)
		}
	}
}
