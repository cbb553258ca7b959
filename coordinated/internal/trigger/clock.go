package trigger

import (
	"time"

	"github.com/holdfast-hpc/holdfast/internal/daly"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
)

// A clock decides when to ask for checkpoints, at rank 0: every interval, at the interval that loses the least time for
// the measured cost and a given time between failures, and once, finally, before a deadline. It repeats a final one
// that fails: the reason for it remains.
type clock struct {
	interval time.Duration // 0 = none
	mtbf     time.Duration // 0 = none; wins over interval
	least    time.Duration // least cost of a checkpoint, for mtbf
	final    time.Time     // zero = none; when to ask for the final one
	points   func() uint64 // the program has come to; nil: it is asked for checkpoints before the first, too

	next  time.Time     // when to ask; zero = never
	asked bool          // for the final one
	retry time.Time     // of a final one that failed; zero = none
	pause sleep.Backoff // before it; its Last is 0 until one has failed

	putOff     time.Time // time to ask again for a checkpoint that was put off; zero = none
	putOffStop bool      // that was a final one
	retrying   bool      // the last one due had been put off
}

// FirstCost is the cost that is assumed until a checkpoint has been measured.
const FirstCost = time.Second

// lookAgain is the time until the next look whether a program has reached a Point.
const lookAgain = 10 * time.Second

// start plans the first.
func (t *clock) start(now time.Time) *clock {
	t.pause = sleep.Backoff{First: 5 * time.Second, Longest: time.Minute}
	t.plan(now, FirstCost)
	return t
}

// plan sets the next time from the end of a checkpoint that blocked the program
// for cost.
func (t *clock) plan(now time.Time, cost time.Duration) {
	switch {
	case t.mtbf > 0:
		t.next = now.Add(daly.Interval(max(cost, t.least), t.mtbf))
	case t.interval > 0:
		t.next = now.Add(t.interval)
	}
}

// wait returns how long until something is due; false if nothing ever is.
func (t *clock) wait(now time.Time) (time.Duration, bool) {
	at := t.next
	if !t.putOff.IsZero() && (at.IsZero() || t.putOff.Before(at)) {
		at = t.putOff
	}
	if stop := t.stopAt(); !stop.IsZero() && (at.IsZero() || stop.Before(at)) {
		at = stop
	}
	if at.IsZero() {
		return 0, false
	}
	return max(at.Sub(now), 0), true
}

// stopAt returns when to ask for a final checkpoint; zero = never.
func (t *clock) stopAt() time.Time {
	if !t.asked && !t.final.IsZero() && (t.retry.IsZero() || t.final.Before(t.retry)) {
		return t.final
	}
	return t.retry
}

// failed plans to ask again for a final checkpoint that came to nothing, and
// returns when.
func (t *clock) failed(now time.Time) time.Duration {
	t.retry = now.Add(t.pause.Next())
	return t.pause.Last
}

// due returns the checkpoint to ask for now.
func (t *clock) due(now time.Time) (ask, stop bool) {
	t.retrying = false
	if at := t.stopAt(); !at.IsZero() && !now.Before(at) {
		t.asked = t.asked || at.Equal(t.final)
		t.retry, t.next = time.Time{}, time.Time{}
		return true, true
	}
	if t.retrying = !t.putOff.IsZero() && !now.Before(t.putOff); t.retrying {
		t.putOff = time.Time{}
		return true, t.putOffStop
	}
	if !t.next.IsZero() && !now.Before(t.next) {
		if t.idle() {
			t.next = now.Add(lookAgain)
			return false, false
		}
		t.next = time.Time{} // planned again when this one is over
		return true, false
	}
	return false, false
}

// idle reports whether the program is not asked for checkpoints because it has reached no Point: it may never do so,
// and take checkpoints in another way.
func (t *clock) idle() bool { return t.points != nil && t.points() == 0 }

// name describes the source of a request.
func (t *clock) name(stop bool) string {
	switch {
	case t.retrying || !t.putOff.IsZero():
		return "a checkpoint that was put off"
	case stop && t.pause.Last > 0:
		return "a failed final checkpoint"
	case stop:
		return "the deadline"
	case t.mtbf > 0 && t.idle():
		return "Daly's interval, if the program comes to a point by then"
	case t.mtbf > 0:
		return "Daly's interval"
	}
	return "the interval"
}

func (t *clock) status() *job.NextStatus {
	d, ok := t.wait(time.Now())
	if !ok {
		return nil
	}
	at := t.stopAt()
	final := !t.putOff.IsZero() && t.putOffStop || !at.IsZero() && (t.next.IsZero() || at.Before(t.next))
	return &job.NextStatus{By: t.name(final), Seconds: d.Seconds(), Final: final}
}
