package coordinated

import (
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
)

// polling recognises a main thread that calls Test or Iprobe round and round: it
// is blocked in no call and yet waits. It may compute between the polls, so what
// it waits for stands from the first polls without success until a message of
// those that it polls for has come, or it reaches a Point.
//
// A program that overlaps computing with an occasional test looks the same for a
// while. Taking it for one that waits does no harm but this: two such programs
// could keep each other from parking. So each time that one which was taken for
// waiting comes to a Point without the message, it takes twice as long to count as
// waiting.
type polling struct {
	calls  uint64        // waits so far, to tell them apart
	points uint64        // Points reached when this one began
	polls  uint64        // polls without success at the last look
	looks  int           // looks at which they had grown
	since  time.Duration // the first of those
	told   bool          // it counts as waiting
	vain   int           // waits in a row that ended at a Point
	raw    []endpoint.Wait
	waits  []cut.Wait // of raw
}

// A rank that polls counts as waiting when so many looks have found it at it, or
// when it has done nothing else for so long.
const (
	pollLooks    = 4
	pollPatience = 250 * time.Millisecond
	mostVain     = 16 // doublings
)

// pollCall marks the call number of a polling rank: its own count takes the place
// of calls, which count on while it polls.
const pollCall = 1 << 63

// pollView is what a look finds.
type pollView struct {
	now    time.Duration
	points uint64
	polls  uint64 // without success so far
	last   endpoint.Wait
	wait   func(endpoint.Wait) cut.Wait // with what has been received so far
}

// look takes in one look at the main thread, and returns what it polls for as a
// call that it is blocked in; nil if it does not count as waiting.
func (p *polling) look(v pollView) *cut.Block {
	switch {
	case p.served(v):
		p.vain = 0
		p.restart(v)
	case p.points != v.points || p.calls == 0:
		if p.told {
			p.vain = min(p.vain+1, mostVain)
		}
		p.restart(v)
	case v.polls != p.polls:
		p.note(v)
	}
	if !p.told {
		return nil
	}
	return &cut.Block{Call: pollCall | p.calls, Waits: slices.Clone(p.waits)}
}

// restart begins another wait.
func (p *polling) restart(v pollView) {
	*p = polling{calls: p.calls + 1, points: v.points, polls: v.polls, vain: p.vain}
}

// served says whether anything that is polled for has come.
func (p *polling) served(v pollView) bool {
	for i, r := range p.raw {
		w := v.wait(r)
		if w.Had != p.waits[i].Had {
			return true
		}
	}
	return false
}

// note takes in further polls that found nothing.
func (p *polling) note(v pollView) {
	if p.looks == 0 {
		p.since = v.now
	}
	p.looks++
	p.polls = v.polls
	w := v.wait(v.last)
	if !slices.ContainsFunc(p.waits, func(o cut.Wait) bool { return o.Source == w.Source && o.Comm == w.Comm }) {
		p.raw, p.waits = append(p.raw, v.last), append(p.waits, w)
	}
	if p.looks >= pollLooks<<p.vain || p.looks > 1 && v.now-p.since >= pollPatience<<p.vain {
		p.told = true
	}
}
