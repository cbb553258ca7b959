package coordinated

import (
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/storage"
)

func TestStopwatch(t *testing.T) {
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	l := newStopwatch(start)
	l.until(at(3), "a")
	l.until(at(2), "nothing") // before the last call
	l.until(time.Time{}, "never")
	l.until(at(7), "b")
	l.until(at(8), "a") // a second epoch was tried
	if got, want := l.String(), "a 0s, nothing 0s, never 0s, b 0s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for i, want := range []time.Duration{4, 0, 0, 4} {
		if got := l.parts[i].Took; got != want {
			t.Errorf("%s: got %d, want %d", l.parts[i].Name, got, want)
		}
	}
}

// TestRestoreParts: the parts of a restore are all of it.
func TestRestoreParts(t *testing.T) {
	b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
	b.epochs = 1
	for range 2 {
		if err := b.run(); err != nil {
			t.Fatal(err)
		}
	}
	r := b.stats[0].Restore
	if b.restoring[0] == 0 || b.restoring[0] > b.restoring[1] || b.restoring[1] != r.Bytes {
		t.Errorf("read %v bytes of all, want up to %d", b.restoring, r.Bytes)
	}
	var sum time.Duration
	seen := map[string]bool{}
	for _, p := range r.Parts {
		sum += p.Took
		seen[p.Name] = true
	}
	if r.Epoch == 0 || sum > r.Took {
		t.Errorf("got %v in all of %v, epoch %d", sum, r.Took, r.Epoch)
	}
	for _, want := range []string{PartAgree, PartNote, PartOpen, PartMemory, PartVote} {
		if !seen[want] {
			t.Errorf("there is no part %q in %v", want, r.Parts)
		}
	}
}
