package watch

import (
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
)

// Polling recognises a main thread that calls Test or Iprobe repeatedly: it is blocked in no call and yet waits. It may
// compute between the polls, so its wait stands from the first polls without success until one of the polled messages
// has come, or it reaches a Point.
//
// A program that overlaps computing with an occasional test looks the same. To count it as waiting does only this harm:
// two such programs could keep each other from parking. So each time that such a program reaches a Point without the
// message, it takes twice as long to count as waiting.
type Polling struct {
	calls     uint64        // waits until now; the number identifies one
	points    uint64        // Points reached when this one began
	polls     uint64        // polls without success at the last look
	looks     int           // looks at which they had grown
	since     time.Duration // the first of those
	waiting   bool          // it counts as waiting
	misjudged int           // waits in a row that ended at a Point
	raw       []endpoint.Wait
	waits     []cut.Wait // of raw
}

// A rank that polls counts as waiting after this number of looks that found it polling, or this time without anything
// else.
const (
	pollLooks     = 4
	pollPatience  = 250 * time.Millisecond
	mostDoublings = 16 // doublings
)

// pollCall marks the call number of a polling rank: its own count takes the place
// of calls, which count on while it polls.
const pollCall = 1 << 63

// A View has the findings of a look.
type View struct {
	Now    time.Duration
	Points uint64
	Polls  uint64 // without success so far
	Last   endpoint.Wait
	Wait   func(endpoint.Wait) cut.Wait // with the number of messages received
}

// Look takes in one look at the main thread, and returns the polled messages as a call that it is blocked in; nil if it
// does not count as waiting.
func (p *Polling) Look(v View) *cut.Block {
	switch {
	case p.served(v):
		p.misjudged = 0
		p.restart(v)
	case p.points != v.Points || p.calls == 0:
		if p.waiting {
			p.misjudged = min(p.misjudged+1, mostDoublings)
		}
		p.restart(v)
	case v.Polls != p.polls:
		p.note(v)
	}
	if !p.waiting {
		return nil
	}
	return &cut.Block{Call: pollCall | p.calls, Waits: slices.Clone(p.waits)}
}

// restart begins another wait.
func (p *Polling) restart(v View) {
	*p = Polling{calls: p.calls + 1, points: v.Points, polls: v.Polls, misjudged: p.misjudged}
}

// served reports whether anything that is polled for has come.
func (p *Polling) served(v View) bool {
	for i, r := range p.raw {
		w := v.Wait(r)
		if w.Had != p.waits[i].Had {
			return true
		}
	}
	return false
}

// note takes in further polls that found nothing.
func (p *Polling) note(v View) {
	if p.looks == 0 {
		p.since = v.Now
	}
	p.looks++
	p.polls = v.Polls
	w := v.Wait(v.Last)
	if !slices.ContainsFunc(p.waits, func(o cut.Wait) bool { return o.Source == w.Source && o.Comm == w.Comm }) {
		p.raw, p.waits = append(p.raw, v.Last), append(p.waits, w)
	}
	if p.looks >= pollLooks<<p.misjudged || p.looks > 1 && v.Now-p.since >= pollPatience<<p.misjudged {
		p.waiting = true
	}
}

// Waits returns the waits for the polled messages.
func (p *Polling) Waits() []cut.Wait { return p.waits }
