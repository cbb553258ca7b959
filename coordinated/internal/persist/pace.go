package persist

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/storage"
)

// Every is how often an epoch goes to a level: every Epochs epochs, or when Time has passed between the cuts of the
// last one there and this one. Zero: every epoch. At most one of the two is set.
type Every struct {
	Epochs int
	Time   time.Duration
}

// ParseEvery reads a count such as 4 or a duration such as 10m.
func ParseEvery(s string) (Every, error) {
	if n, err := strconv.Atoi(s); err == nil {
		if n < 0 {
			return Every{}, errors.New("negative")
		}
		return Every{Epochs: n}, nil
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return Every{}, errors.New("not understood")
	case d < 0:
		return Every{}, errors.New("negative")
	}
	return Every{Time: d}, nil
}

// Thins reports whether the level skips epochs.
func (v Every) Thins() bool { return v.Epochs > 1 || v.Time > 0 }

// String describes how often epochs go to the level.
func (v Every) String() string {
	switch {
	case v.Time > 0:
		return "every " + v.Time.String()
	case v.Epochs > 1:
		return fmt.Sprintf("every %d epochs", v.Epochs)
	}
	return "every epoch"
}

// pacer decides at rank 0, for all ranks, which epochs go to which levels. A level takes one epoch at a time, and of
// those that wait only the newest: nothing queues. It reads no clock.
type pacer struct {
	mu     sync.Mutex // guards all fields
	levels []*levelPace
	unused []storage.Epoch // the newest numbers that no epoch has, ascending
	final  storage.Epoch
}

// levelPace is the state of one level.
type levelPace struct {
	every   Every
	newest  storage.Epoch // that was due
	waiting *arrival      // until the level is free
	busy    int           // epochs on their way there: a final one does not wait for the one before
	going   arrival       // the newest that was admitted; epoch 0: none
	last    arrival       // the newest that is there, of this run; epoch 0: none
}

// arrival is an epoch that wants to come to a level.
type arrival struct {
	epoch   storage.Epoch
	cut     time.Time
	decided chan decision
}

// decision is the fate of an epoch at a level.
type decision struct {
	Go bool `json:"go,omitempty"`
	// After is the epoch that was admitted before: it has to be done with the level, or give way. 0: none.
	After storage.Epoch `json:"after,omitempty"`
	// For is the newer epoch that goes in place of one that does not; 0: that one was not
	// due.
	For storage.Epoch `json:"for,omitempty"`
}

func newPacer(every []Every) *pacer {
	p := &pacer{}
	for _, v := range every {
		p.levels = append(p.levels, &levelPace{every: v})
	}
	return p
}

// arrive asks whether an epoch comes to the i-th level. The decision comes at once, or
// when the level is free or a newer epoch arrives.
func (p *pacer) arrive(i int, e storage.Epoch, cut time.Time, final bool) <-chan decision {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, a := p.levels[i], arrival{e, cut, make(chan decision, 1)}
	if final {
		p.final = max(p.final, e)
		for _, other := range p.levels { // it goes to all levels
			other.supersede(e)
		}
	}
	newest := max(l.newest, p.final)
	switch {
	case e < newest:
		a.decided <- decision{For: newest}
		return a.decided
	case !final && !p.due(l, &a):
		a.decided <- decision{}
		return a.decided
	}
	l.supersede(e)
	l.newest = e
	if l.busy > 0 && !final {
		l.waiting = &a
		return a.decided
	}
	l.admit(a)
	return a.decided
}

// supersede dismisses a waiting epoch in favour of a newer one.
func (l *levelPace) supersede(e storage.Epoch) {
	if l.waiting != nil && l.waiting.epoch < e {
		l.waiting.decided <- decision{For: e}
		l.waiting = nil
	}
}

func (l *levelPace) admit(a arrival) {
	l.busy++
	a.decided <- decision{Go: true, After: l.going.epoch}
	l.going = a
}

// due reports whether an epoch is to come to the level, if the one on its way arrives.
func (p *pacer) due(l *levelPace, a *arrival) bool {
	last := l.last
	if l.busy > 0 && l.going.epoch > last.epoch {
		last = l.going
	}
	switch {
	case last.epoch == 0:
		return true
	case l.every.Time > 0:
		return a.cut.Sub(last.cut) >= l.every.Time
	}
	epochs := a.epoch - last.epoch
	for _, e := range p.unused {
		if last.epoch < e && e < a.epoch {
			epochs--
		}
	}
	return epochs >= storage.Epoch(l.every.Epochs)
}

// mostUnused is how many numbers without an epoch are remembered.
const mostUnused = 1024

// none notes that a number has no epoch.
func (p *pacer) none(e storage.Epoch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unused = append(p.unused, e)
	p.unused = p.unused[max(0, len(p.unused)-mostUnused):]
}

// over notes whether an admitted epoch has reached the i-th level.
func (p *pacer) over(i int, e storage.Epoch, cut time.Time, there bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.levels[i]
	l.busy--
	if there {
		l.arrived(e, cut)
	}
	if w := l.waiting; w != nil && l.busy == 0 {
		l.waiting = nil
		l.admit(*w)
	}
}

func (l *levelPace) arrived(e storage.Epoch, cut time.Time) {
	if e > l.last.epoch {
		l.last = arrival{epoch: e, cut: cut}
	}
}

// at notes that an epoch is at the i-th level, to which it came straight from memory.
func (p *pacer) at(i int, e storage.Epoch, cut time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.levels[i]
	l.arrived(e, cut)
	l.newest = max(l.newest, e)
	l.supersede(e)
}

// occupy keeps all levels beyond the first for a repair of an epoch, and free ends that.
func (p *pacer) occupy(e storage.Epoch) (free func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.levels[1:] {
		l.busy++
		l.going = arrival{epoch: e}
	}
	return func() {
		for i := range p.levels[1:] {
			p.over(i+1, e, time.Time{}, false)
		}
	}
}

// Free reports at rank 0 whether no epoch is on its way to a level, so that the next one finds all free. An epoch is
// reported as durable a little earlier, before superfluous epochs are removed.
func (p *Persister) Free() bool {
	p.pace.mu.Lock()
	defer p.pace.mu.Unlock()
	return !slices.ContainsFunc(p.pace.levels, func(l *levelPace) bool { return l.busy > 0 })
}

// ask gives all ranks the decision of rank 0's pacer. Collective; decide is called at rank 0 only.
func (p *Persister) ask(e storage.Epoch, level string, decide func() decision) (d decision, err error) {
	var mine []byte
	if p.Rank == 0 {
		if mine, err = json.Marshal(decide()); err != nil {
			return d, err
		}
	}
	blobs, err := p.Allgather(e, "pace "+level, mine)
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(blobs[0].Data, &d); err != nil {
		return d, fmt.Errorf("what rank 0 decided on epoch %d at level %s: %w", e, level, err)
	}
	return d, nil
}

// enter waits until the epoch may go to the i-th level, or is passed over there.
// Collective.
func (x *Epoch) enter(i int) (decision, error) {
	return x.p.ask(x.c.Epoch, x.p.Levels[i], func() decision {
		select {
		case d := <-x.p.pace.arrive(i, x.c.Epoch, x.start, x.c.Final):
			return d
		case <-x.p.ctx.Done():
			return decision{}
		}
	})
}

// leave ends an enter that admitted the epoch.
func (x *Epoch) leave(i int, there bool) {
	x.turn.pass(i)
	if x.p.Rank == 0 {
		x.p.pace.over(i, x.c.Epoch, x.start, there)
	}
}
