package report

import (
	"github.com/holdfast-hpc/holdfast/coordinated/events"
)

// tracker follows the main thread of one rank through its log.
type tracker struct {
	l     *track
	at    int64  // begin of the main thread's present activity; -1 before the log begins
	now   kind   // that activity
	epoch uint64 // of it
	open  map[string]stretch
}

// follow makes the tracks of one log. usec gives the time of an event.
func follow(log *events.RankLog, usec func(mono int64) int64) *tracker {
	l := &track{run: log.Header.Run, rank: log.Rank, size: log.Header.Size, node: log.Header.Node,
		alive: log.Header.AliveNS / 1000}
	t := &tracker{l: l, at: usec(log.Events[0].Mono), now: starting, open: map[string]stretch{}}
	if log.Truncated {
		t.now = computing // the state from before is gone
	}
	l.first, l.last = t.at, t.at
	for i := range log.Events {
		e := &log.Events[i]
		at := usec(e.Mono)
		t.event(e, at)
		l.last = max(l.last, at)
		l.points = max(l.points, e.Points)
	}
	return t
}

// briefly is the time in µs up to which the main thread's way from one step of a
// checkpoint to the next counts to the former.
const briefly = 1000

// turn ends the main thread's activity and begins another.
func (t *tracker) turn(at int64, next kind, epoch uint64) {
	last := len(t.l.main) - 1
	switch {
	case at <= t.at:
	case t.now == held && at-t.at < briefly && last >= 0:
		t.l.main[last].to, t.at = at, at
	default:
		t.l.main = append(t.l.main, stretch{kind: t.now, from: t.at, to: at, epoch: t.epoch})
		t.at = at
	}
	t.now, t.epoch = next, epoch
}

// took ends a stretch of the main thread whose length is known, whatever it
// seemed to do before.
func (t *tracker) took(e *events.Event, at int64, k, next kind) {
	from := at - e.Dur/1000
	t.turn(from, k, e.Epoch)
	if at > t.at {
		t.l.main = append(t.l.main, stretch{kind: k, from: t.at, to: at, epoch: e.Epoch, bytes: e.Bytes,
			text: text(e)})
		t.at = at
	}
	t.now, t.epoch = next, e.Epoch
}

func text(e *events.Event) string {
	if e.Text != "" {
		return "failed: " + e.Text
	}
	return e.What
}

// mainBegins are the spans of the main thread.
var mainBegins = map[string]kind{events.Open: starting, events.Restore: restoring, events.Park: parked,
	events.Drain: draining, events.Capture: capturing}

// behindKinds are the spans behind it.
var behindKinds = map[string]kind{events.Write: writing, events.Vote: voting, events.Redundancy: redundancy,
	events.Flush: flushing}

func (t *tracker) event(e *events.Event, at int64) {
	if k, ok := behindKinds[e.Name]; ok {
		t.behind(e, at, k)
		return
	}
	if e.Begin {
		if k, ok := mainBegins[e.Name]; ok {
			t.turn(at, k, e.Epoch)
		}
		return
	}
	switch e.Name {
	case events.Open:
		t.took(e, at, starting, starting)
	case events.Restore:
		next := computing
		if e.Text != "" { // there is nothing to compute with
			next = ending
		}
		t.took(e, at, restoring, next)
		t.epoch = 0
	case events.Park:
		t.took(e, at, parked, held)
	case events.Release:
		t.took(e, at, parked, computing)
		t.epoch = 0
	case events.Drain:
		t.took(e, at, draining, held)
	case events.Capture:
		t.took(e, at, capturing, held)
	case events.Resume:
		next := computing
		if e.Stop {
			next = stopping
		}
		t.turn(at, next, 0)
	case events.Stop:
		t.l.stopped = true
		t.turn(at, ending, 0)
	case events.Finish:
		t.turn(at, ending, 0)
	case events.Close:
		t.turn(at, ending, 0)
		t.l.closed = true
	case events.Failure:
		switch e.What {
		case "lost":
			t.l.lost, t.l.why, t.l.death = e.Peer, e.Text, at-e.Dur/1000
		case "abort":
			t.l.why = "aborted: " + e.Text
		}
	}
}

// behind follows writes while the program continues.
func (t *tracker) behind(e *events.Event, at int64, k kind) {
	key := e.Name + "\x00" + e.Level
	if e.Begin {
		t.open[key] = stretch{kind: k, from: at, epoch: e.Epoch}
		return
	}
	delete(t.open, key)
	t.l.behind = append(t.l.behind, stretch{kind: k, from: at - e.Dur/1000, to: at, epoch: e.Epoch,
		bytes: max(e.Stored, 0), text: text(e)})
}

// finish extends the activities at the end of the log to the end of the run.
func (t *tracker) finish(end int64) {
	if t.l.closed {
		return
	}
	if end > t.at {
		t.l.main = append(t.l.main, stretch{kind: t.now, from: t.at, to: end, epoch: t.epoch, open: t.now != computing})
		t.at = end
	}
	for _, s := range t.open {
		s.to, s.open = max(end, s.from), true
		t.l.behind = append(t.l.behind, s)
	}
	t.l.last = max(t.l.last, end)
}
