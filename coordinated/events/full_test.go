package events

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// TestLogGoesOnWhenThereIsRoom fills the disk at random moments, at the start too,
// and makes room again. What was logged while there was room is read, in order,
// and the lines that are missing are counted.
func TestLogGoesOnWhenThereIsRoom(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			mem := crashfs.New()
			mem.MkdirAll("/d")
			if seed%4 == 0 {
				mem.SetSpace(int64(r.IntN(200)))
			}
			l, opt := newLog(t, func(o *Options) {
				o.fs, o.Dir = mem, "/d/events"
				if seed%3 == 0 {
					o.MaxBytes = 4000
				}
			})
			total, last := 0, uint64(0)
			for i := range 80 {
				if r.IntN(6) == 0 {
					mem.SetSpace(int64(r.IntN(6000)))
				}
				if r.IntN(4) == 0 || i == 79 {
					mem.SetSpace(-1)
				}
				e := Event{Name: Arm, Epoch: uint64(i + 1), What: strings.Repeat("w", r.IntN(200))}
				if r.IntN(3) == 0 {
					e.Name = Alive
				}
				if i == 79 {
					e.Name = Arm
				}
				l.Emit(e)
				total++
				if r.IntN(3) > 0 { // else batches grow
					l.Flush(t.Context())
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			got := readOne(t, opt)
			if got.Bad > 0 || got.Torn {
				t.Errorf("%d bad lines, torn %v", got.Bad, got.Torn)
			}
			arms := uint64(0)
			for _, e := range got.Events {
				if e.Name == Open {
					continue
				}
				if e.Epoch <= last {
					t.Errorf("epoch %d after %d", e.Epoch, last)
				}
				last = e.Epoch
				arms++
			}
			if last != 80 {
				t.Errorf("the last line is of epoch %d, want 80", last)
			}
			if !got.Truncated && arms+got.Lost > uint64(total) {
				t.Errorf("%d lines and %d missing, %d were logged", arms, got.Lost, total)
			}
		})
	}
}

// TestGapIsCounted: every line of a gap is in the count of the line behind it.
func TestGapIsCounted(t *testing.T) {
	mem := crashfs.New()
	mem.MkdirAll("/d")
	l, opt := newLog(t, func(o *Options) { o.fs, o.Dir = mem, "/d/events" })
	emit := func(n int) {
		for range n {
			l.Emit(Event{Name: Arm, Epoch: 1, What: strings.Repeat("x", 50)})
			l.Flush(t.Context())
		}
	}
	emit(2)
	mem.SetSpace(0)
	emit(5)
	l.Emit(Event{Name: Alive})
	l.Flush(t.Context())
	mem.SetSpace(-1)
	l.Emit(Event{Name: Alive})
	l.Flush(t.Context())
	l.Emit(Event{Name: Alive}) // takes no place of the one that tells of the gap
	emit(1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got := readOne(t, opt)
	if got.Lost != 6 || got.Bad != 0 {
		t.Errorf("got %d missing, %d bad, want 6 and 0", got.Lost, got.Bad)
	}
}
