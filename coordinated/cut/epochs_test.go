package cut

import (
	"container/heap"
	"fmt"
	"testing"
	"time"
)

// epochs drives a model through epoch after epoch: requests at random moments
// of any rank, some epochs given up, captures that take their time, and the end
// of an epoch at rank 0 even before other ranks have reported their captures.
type epochs struct {
	*model
	open   map[Epoch]int // ranks that have cut it
	gone   map[Epoch]int // ranks that gave it up
	cut    int           // epochs that all ranks have cut
	gave   int           // epochs that all ranks gave up
	faults []error
}

func newEpochs(w *model) *epochs {
	e := &epochs{model: w, open: map[Epoch]int{}, gone: map[Epoch]int{}}
	w.onCut = e.onCut
	w.onGaveUp = e.onGaveUp
	for i := range 12 {
		r := w.ranks[w.rng.IntN(len(w.ranks))]
		at := time.Duration(i*4000+w.rng.IntN(4000)) * time.Microsecond
		w.after(at, func() { w.step(r, Request{}) })
	}
	return e
}

func (e *epochs) fault(format string, args ...any) {
	e.faults = append(e.faults, fmt.Errorf(format, args...))
}

func (e *epochs) onCut(r *modelRank, a Cut) {
	if err := e.still(); err != nil {
		e.fault("epoch %d: %w", a.Epoch, err)
	}
	if e.gone[a.Epoch] > 0 {
		e.fault("rank %d cut epoch %d, which another gave up", r.id, a.Epoch)
	}
	e.open[a.Epoch]++
	if e.open[a.Epoch] == len(e.ranks) {
		e.settle(a.Epoch)
	}
}

// settle lets all ranks capture and go on, in any order, and ends the epoch.
func (e *epochs) settle(epoch Epoch) {
	e.cut++
	for _, r := range e.ranks {
		if err := e.accounted(r); err != nil {
			e.fault("epoch %d: %w", epoch, err)
		}
		e.after(time.Duration(e.rng.IntN(1500))*time.Microsecond, func() {
			r.waiting = r.done
			e.step(r, Captured{Epoch: epoch, Colls: r.m.colls})
			e.advance(r)
		})
	}
	e.after(time.Duration(e.rng.IntN(2000))*time.Microsecond, func() { e.step(e.ranks[0], Done{Epoch: epoch}) })
}

func (e *epochs) onGaveUp(r *modelRank, a GaveUp) {
	if e.open[a.Epoch] > 0 {
		e.fault("rank %d gave up epoch %d, which another cut", r.id, a.Epoch)
	}
	e.gone[a.Epoch]++
	if e.gone[a.Epoch] == len(e.ranks) {
		e.gave++
	}
}

// run goes on until all is quiet.
func (e *epochs) run(limit time.Duration) {
	for len(e.queue) > 0 && e.now < limit && len(e.faults) == 0 {
		ev := heap.Pop(&e.queue).(event)
		e.now = ev.at
		ev.run()
	}
	for epoch, n := range e.open {
		if n != len(e.ranks) {
			e.fault("epoch %d: %d of %d ranks cut", epoch, n, len(e.ranks))
		}
	}
	for epoch, n := range e.gone {
		if n != len(e.ranks) {
			e.fault("epoch %d: %d of %d ranks gave up", epoch, n, len(e.ranks))
		}
	}
	if !e.ranks[0].m.Resting() {
		e.fault("rank 0 is not at rest: %v", e.ranks[0].m)
	}
}

// TestManyEpochs: every epoch is cut by all ranks or given up by all ranks, also
// when they follow each other closely, and at the end nothing is in progress.
func TestManyEpochs(t *testing.T) {
	for _, sh := range shapes {
		t.Run(sh.name, func(t *testing.T) {
			cut, gave := 0, 0
			for seed := range someSeeds(60) {
				w := start(sh.name, seed, 2+int(seed%5), func(c *Config) {
					c.Timeout = time.Duration(1+seed%8) * time.Millisecond
				})
				e := newEpochs(w)
				e.run(time.Second)
				if len(e.faults) > 0 {
					t.Fatalf("seed %d: %v\n%s", seed, e.faults[0], w.standing())
				}
				cut, gave = cut+e.cut, gave+e.gave
			}
			t.Logf("%d epochs cut, %d given up", cut, gave)
			if cut == 0 {
				t.Error("no epoch was cut: the test shows nothing")
			}
		})
	}
}
