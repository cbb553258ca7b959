package watch

import (
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
)

// TestPolling: what counts as waiting, look by look.
func TestPolling(t *testing.T) {
	var p Polling
	var had uint64
	v := View{Last: endpoint.Wait{Source: 1}, Wait: func(w endpoint.Wait) cut.Wait {
		return cut.Wait{Source: w.Source, Had: had}
	}}
	look := func(polls, points uint64, later time.Duration) (call uint64) {
		v.Polls, v.Points, v.Now = v.Polls+polls, v.Points+points, v.Now+later
		if b := p.Look(v); b != nil {
			return b.Call &^ pollCall
		}
		return 0
	}
	check := func(what string, got, want uint64) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got call %d, want %d", what, got, want)
		}
	}
	const tick = time.Millisecond
	check("first look", look(1, 0, tick), 0)
	for range pollLooks - 1 {
		check("some polls", look(1, 0, tick), 0)
	}
	check("enough polls", look(1, 0, tick), 1)
	check("computing between polls", look(0, 0, 100*tick), 1)
	check("polling on", look(5, 0, tick), 1)
	had++
	check("a message has come", look(1, 0, tick), 0)
	check("a poll", look(1, 0, tick), 0)
	check("another, much later", look(1, 0, time.Second), 2)
	check("a Point", look(0, 1, tick), 0)
	for range pollLooks {
		check("as many polls as before", look(1, 0, tick), 0)
	}
	for range pollLooks - 1 {
		check("waited in vain once, so more polls are needed", look(1, 0, tick), 0)
	}
	check("twice as many", look(1, 0, tick), 3)
}
