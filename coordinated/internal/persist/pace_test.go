package persist

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/storage"
)

// told returns what became of an arrival: "go after 3", "for 5", "not due", or "waits".
func told(ch <-chan decision) string {
	select {
	case d := <-ch:
		switch {
		case d.Go:
			return fmt.Sprint("go after ", d.After)
		case d.For != 0:
			return fmt.Sprint("for ", d.For)
		}
		return "not due"
	default:
		return "waits"
	}
}

// TestPace plays epochs that come to the levels.
func TestPace(t *testing.T) {
	type step struct {
		do   string // "3": epoch 3 arrives; "3!": a final one; "over 3", "failed 3"
		want string // of the arrival; then of those that waited, as "2: for 3"
	}
	for _, c := range []struct {
		name  string
		every Every
		steps []step
	}{
		{"keeps up", Every{}, []step{{"1", "go after 0"}, {"over 1", ""}, {"2", "go after 1"}, {"over 2", ""}}},
		{"falls behind", Every{}, []step{{"1", "go after 0"}, {"2", "waits"}, {"3", "waits, 2: for 3"},
			{"4", "waits, 3: for 4"}, {"over 1", "4: go after 1"}, {"5", "waits"}, {"over 4", "5: go after 4"}}},
		{"older ones come late", Every{}, []step{{"3", "go after 0"}, {"2", "for 3"}, {"over 3", ""}, {"1", "for 3"}}},
		{"counts", Every{Epochs: 3}, []step{{"1", "go after 0"}, {"2", "not due"}, {"over 1", ""}, {"3", "not due"},
			{"4", "go after 1"}, {"over 4", ""}, {"6", "not due"}, {"7", "go after 4"}}},
		{"a failed one is made up for", Every{Epochs: 3}, []step{{"1", "go after 0"}, {"over 1", ""},
			{"4", "go after 1"}, {"failed 4", ""}, {"5", "go after 4"}}},
		{"times", Every{Time: 3 * time.Second}, []step{{"1", "go after 0"}, {"over 1", ""}, {"3", "not due"},
			{"4", "go after 1"}, {"6", "not due"}, {"7", "waits"}, {"over 4", "7: go after 4"}}},
		{"a final one", Every{Epochs: 9}, []step{{"1", "go after 0"}, {"10", "waits"},
			{"11!", "go after 1, 10: for 11"},
			{"over 1", ""}, {"over 11", ""}, {"12", "not due"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPacer([]Every{{}, c.every})
			start := time.Unix(0, 0)
			waiting := map[storage.Epoch]<-chan decision{}
			for _, s := range c.steps {
				var e storage.Epoch
				var got []string
				word, number, two := strings.Cut(s.do, " ")
				if !two {
					number = strings.TrimSuffix(s.do, "!")
				}
				if _, err := fmt.Sscan(number, &e); err != nil {
					t.Fatal(err)
				}
				cut := start.Add(time.Duration(e) * time.Second)
				if two {
					p.over(1, e, cut, word == "over")
				} else {
					waiting[e] = p.arrive(1, e, cut, strings.HasSuffix(s.do, "!"))
					if got = append(got, told(waiting[e])); got[0] != "waits" {
						delete(waiting, e)
					}
				}
				for w, other := range waiting {
					if what := told(other); what != "waits" {
						got = append(got, fmt.Sprintf("%d: %s", w, what))
						delete(waiting, w)
					}
				}
				if text := strings.Join(got, ", "); text != s.want {
					t.Fatalf("%s: got %q, want %q", s.do, text, s.want)
				}
			}
		})
	}
}

// TestNothingQueues plays random epochs at two levels. At most one waits at a level, each
// level gets its epochs in order and one at a time, whoever waits learns what becomes of
// it, and when all is over the newest epoch is there.
func TestNothingQueues(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 16))
		p := newPacer([]Every{{}, {}, {}})
		type walk struct {
			e       storage.Epoch
			level   int // that it waits for, or is on the way to
			ch      <-chan decision
			through bool
		}
		var walks []*walk
		there := map[int]storage.Epoch{}
		next := storage.Epoch(1)
		const last = 40
		for len(walks) > 0 || next <= last {
			if next <= last && (len(walks) == 0 || rng.IntN(3) == 0) {
				walks = append(walks, &walk{e: next, level: 1})
				next++
				continue
			}
			i := rng.IntN(len(walks))
			w := walks[i]
			switch {
			case w.ch == nil:
				w.ch = p.arrive(w.level, w.e, time.Time{}, false)
			case w.through:
				if w.e < there[w.level] {
					t.Fatalf("seed %d: epoch %d comes to level %d after %d", seed, w.e, w.level, there[w.level])
				}
				there[w.level] = w.e
				p.over(w.level, w.e, time.Time{}, true)
				w.level, w.ch, w.through = w.level+1, nil, false
			default:
				select {
				case d := <-w.ch:
					if w.through = d.Go; !d.Go {
						w.level, w.ch = w.level+1, nil
					}
				default:
				}
			}
			if w.level > 2 {
				walks = append(walks[:i], walks[i+1:]...)
			}
			for l := 1; l <= 2; l++ {
				through := 0
				for _, w := range walks {
					if w.level == l && w.through {
						through++
					}
				}
				if through > 1 {
					t.Fatalf("seed %d: %d epochs on the way to level %d", seed, through, l)
				}
			}
		}
		if there[1] != last || there[2] != last {
			t.Errorf("seed %d: the levels have %v in the end, want %d", seed, there, last)
		}
	}
}

// TestNumbersWithoutEpochs: numbers whose cuts were put off do not count for a level that takes one epoch in n.
func TestNumbersWithoutEpochs(t *testing.T) {
	p := newPacer([]Every{{}, {Epochs: 2}})
	var went []storage.Epoch
	for e := storage.Epoch(1); e <= 12; e++ {
		if e%3 != 1 { // epochs 1, 4, 7 and 10
			p.none(e)
			continue
		}
		if told(p.arrive(1, e, time.Time{}, false)) != "not due" {
			went = append(went, e)
			p.over(1, e, time.Time{}, true)
		}
	}
	if !slices.Equal(went, []storage.Epoch{1, 7}) {
		t.Errorf("got epochs %v, want every second one: 1 and 7", went)
	}
	for e := storage.Epoch(13); e < 3*mostUnused; e++ {
		p.none(e)
	}
	if len(p.unused) != mostUnused {
		t.Errorf("%d numbers are remembered", len(p.unused))
	}
}
