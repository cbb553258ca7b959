package coordinated

import (
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
)

// polling recognises a main thread that calls Test or Iprobe round and round: it
// is blocked in no call and yet waits.
type polling struct {
	points uint64 // Points reached when it was first seen at it
	polls  uint64 // polls without success at the last look
	looks  int    // looks at which they had grown
	waits  []cut.Wait
}

// pollLooks is how many looks in a row must find a rank polling, without a Point
// in between, before it counts as waiting: a program that overlaps computing
// with an occasional test is not.
const pollLooks = 4

// pollCall marks the call number of a polling rank: Points take the place of
// calls, which count on while it polls.
const pollCall = 1 << 63

// polled returns what the main thread polls for, as a call that it is blocked in;
// nil if it does something else.
func (a *agent) polled(points uint64) *cut.Block {
	last, polls := a.c.endpoint.Polling()
	p := &a.polls
	if p.points != points || p.looks == 0 {
		*p = polling{points: points, polls: polls, looks: 1}
		return nil
	}
	if polls == p.polls {
		return nil // it computes, or is between two polls
	}
	p.polls = polls
	p.looks++
	w := a.wait(last)
	if i := slices.IndexFunc(p.waits, func(o cut.Wait) bool { return o.Source == w.Source && o.Comm == w.Comm }); i >= 0 {
		p.waits[i] = w
	} else {
		p.waits = append(p.waits, w)
	}
	if p.looks < pollLooks {
		return nil
	}
	return &cut.Block{Call: pollCall | points, Waits: slices.Clone(p.waits)}
}
