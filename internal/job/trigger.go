package job

import (
	"math"
	"time"
)

// A Trigger says when to ask for checkpoints by the clock, at rank 0: every interval, at the
// interval that loses the least time for the measured cost and a given time
// between failures, and once, finally, before a deadline. A final one that fails
// is asked for again and again: who wanted it still does.
type Trigger struct {
	interval time.Duration // 0 = none
	mtbf     time.Duration // 0 = none; wins over interval
	final    time.Time     // zero = none; when to ask for the final one

	next  time.Time     // when to ask; zero = never
	asked bool          // for the final one
	retry time.Time     // of a final one that failed; zero = none
	pause time.Duration // before it; 0 = none has failed
}

// The pause before a final checkpoint is asked for again, doubled each time.
const (
	firstRetry = 5 * time.Second
	lastRetry  = time.Minute
)

// FirstCost is the cost that is assumed until a checkpoint has been measured.
const FirstCost = time.Second

// NewTrigger makes one that asks after interval, or at the interval for mtbf, and
// finally at final. Zero means never for each.
func NewTrigger(interval, mtbf time.Duration, final, now time.Time) *Trigger {
	t := &Trigger{interval: interval, mtbf: mtbf, final: final}
	t.Plan(now, FirstCost)
	return t
}

// Final sets when to ask for the final one.
func (t *Trigger) Final(at time.Time) { t.final = at }

// Plan sets the next time from the end of a checkpoint that blocked the program
// for cost.
func (t *Trigger) Plan(now time.Time, cost time.Duration) {
	switch {
	case t.mtbf > 0:
		t.next = now.Add(DalyInterval(cost, t.mtbf))
	case t.interval > 0:
		t.next = now.Add(t.interval)
	}
}

// Wait returns how long until something is due; false if nothing ever is.
func (t *Trigger) Wait(now time.Time) (time.Duration, bool) {
	at := t.next
	if stop := t.stopAt(); !stop.IsZero() && (at.IsZero() || stop.Before(at)) {
		at = stop
	}
	if at.IsZero() {
		return 0, false
	}
	return max(at.Sub(now), 0), true
}

// stopAt is when to ask for a final checkpoint; zero = never.
func (t *Trigger) stopAt() time.Time {
	if !t.asked && !t.final.IsZero() && (t.retry.IsZero() || t.final.Before(t.retry)) {
		return t.final
	}
	return t.retry
}

// Failed plans to ask again for a final checkpoint that came to nothing, and
// returns when.
func (t *Trigger) Failed(now time.Time) time.Duration {
	t.pause = min(max(2*t.pause, firstRetry), lastRetry)
	t.retry = now.Add(t.pause)
	return t.pause
}

// Due reports what to ask for now.
func (t *Trigger) Due(now time.Time) (ask, stop bool) {
	if at := t.stopAt(); !at.IsZero() && !now.Before(at) {
		t.asked = t.asked || at.Equal(t.final)
		t.retry, t.next = time.Time{}, time.Time{}
		return true, true
	}
	if !t.next.IsZero() && !now.Before(t.next) {
		t.next = time.Time{} // planned again when this one is over
		return true, false
	}
	return false, false
}

// Name says what asks.
func (t *Trigger) Name(stop bool) string {
	switch {
	case stop && t.pause > 0:
		return "a failed final checkpoint"
	case stop:
		return "the deadline"
	case t.mtbf > 0:
		return "Daly's interval"
	}
	return "the interval"
}

// Status says what is due next; nil if nothing is.
func (t *Trigger) Status() *NextStatus {
	d, ok := t.Wait(time.Now())
	if !ok {
		return nil
	}
	at := t.stopAt()
	final := !at.IsZero() && (t.next.IsZero() || at.Before(t.next))
	return &NextStatus{By: t.Name(final), Seconds: d.Seconds(), Final: final}
}

// DalyInterval returns the computing time between checkpoints that minimises
// the expected run time when one blocks the program for cost and failures come
// mtbf apart on average:
//
//	√(2 cost mtbf) · (1 + ⅓ √(cost/2mtbf) + ⅑ cost/2mtbf) − cost,  for cost < 2 mtbf
//
// and mtbf otherwise. Source: J. T. Daly, "A higher order estimate of the
// optimum checkpoint interval for restart dumps", Future Generation Computer
// Systems 22 (2006) 303, equation 37; its first term is Young's (1974). A cost
// of zero or less counts as a microsecond.
func DalyInterval(cost, mtbf time.Duration) time.Duration {
	cost = max(cost, time.Microsecond)
	if cost >= 2*mtbf {
		return mtbf
	}
	d, m := cost.Seconds(), mtbf.Seconds()
	x := d / (2 * m)
	tau := math.Sqrt(2*d*m)*(1+math.Sqrt(x)/3+x/9) - d
	return time.Duration(tau * float64(time.Second))
}
