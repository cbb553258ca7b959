package coordinated

import (
	"math"
	"time"
)

// trigger asks for checkpoints by the clock, at rank 0: every interval, at the
// interval that loses the least time for the measured cost and a given time
// between failures, and once, finally, before a deadline. A final one that fails
// is asked for again and again: who wanted it still does.
type trigger struct {
	interval time.Duration // 0 = none
	mtbf     time.Duration // 0 = none; wins over interval
	final    time.Time     // zero = none

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

// firstCost is the cost that is assumed until a checkpoint has been measured.
const firstCost = time.Second

func newTrigger(o *Options, now time.Time) *trigger {
	t := &trigger{interval: o.Interval, mtbf: o.MTBF}
	if !o.Deadline.IsZero() && o.DeadlineLead > 0 {
		t.final = o.Deadline.Add(-o.DeadlineLead)
	}
	t.plan(now, firstCost)
	return t
}

// plan sets the next time from the end of a checkpoint that blocked the program
// for cost.
func (t *trigger) plan(now time.Time, cost time.Duration) {
	switch {
	case t.mtbf > 0:
		t.next = now.Add(DalyInterval(cost, t.mtbf))
	case t.interval > 0:
		t.next = now.Add(t.interval)
	}
}

// wait returns how long until something is due; false if nothing ever is.
func (t *trigger) wait(now time.Time) (time.Duration, bool) {
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
func (t *trigger) stopAt() time.Time {
	if !t.asked && !t.final.IsZero() && (t.retry.IsZero() || t.final.Before(t.retry)) {
		return t.final
	}
	return t.retry
}

// failed plans to ask again for a final checkpoint that came to nothing, and
// returns when.
func (t *trigger) failed(now time.Time) time.Duration {
	t.pause = min(max(2*t.pause, firstRetry), lastRetry)
	t.retry = now.Add(t.pause)
	return t.pause
}

// due reports what to ask for now.
func (t *trigger) due(now time.Time) (ask, stop bool) {
	if at := t.stopAt(); !at.IsZero() && !now.Before(at) {
		t.asked = t.asked || at.Equal(t.final)
		t.retry, t.next = time.Time{}, time.Time{}
		return true, true
	}
	if !t.next.IsZero() && !now.Before(t.next) {
		t.next = time.Time{} // planned anew when this one is over
		return true, false
	}
	return false, false
}

// name says what asks.
func (t *trigger) name(stop bool) string {
	switch {
	case stop && t.pause > 0:
		return "a final checkpoint that failed"
	case stop:
		return "the deadline"
	case t.mtbf > 0:
		return "Daly's interval"
	}
	return "the interval"
}

// status says what is due next; nil if nothing is.
func (t *trigger) status() *NextStatus {
	d, ok := t.wait(time.Now())
	if !ok {
		return nil
	}
	at := t.stopAt()
	final := !at.IsZero() && (t.next.IsZero() || at.Before(t.next))
	return &NextStatus{By: t.name(final), Seconds: d.Seconds(), Final: final}
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

// arm sets the agent's timer for whatever is due next.
func (a *agent) arm() {
	if a.trigger == nil {
		return
	}
	a.timer.Stop()
	if d, ok := a.trigger.wait(time.Now()); ok {
		a.timer.Reset(d)
	}
}

// timeUp asks for what is due.
func (a *agent) timeUp() {
	if ask, stop := a.trigger.due(time.Now()); ask {
		a.c.log.Debug("holdfast: checkpoint due", "stop", stop)
		a.request(stop, a.trigger.name(stop))
	}
	a.arm()
}

// replan runs at rank 0 when an epoch is over, committed or not.
func (a *agent) replan(cost time.Duration) {
	if a.trigger == nil {
		return
	}
	a.trigger.plan(time.Now(), cost)
	a.arm()
}

// stopAgain runs at rank 0 when a final checkpoint has failed, or was given up.
func (a *agent) stopAgain() {
	if a.trigger == nil {
		return
	}
	a.c.log.Warn("holdfast: the final checkpoint is asked for again", "in", a.trigger.failed(time.Now()))
	a.arm()
}
