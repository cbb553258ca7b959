package agent

import (
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/watch"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

func (a *Agent) sample() cut.Sampled {
	e := a.Endpoint
	act := e.Activity()
	s := cut.Sampled{Now: time.Since(a.begin), Points: a.Thread.Points.Load(), Colls: a.colls()}
	if act.Blocked {
		a.seen(act)
	}
	last, polls := e.Polling()
	s.Block = a.polls.Look(watch.View{Now: s.Now, Points: s.Points, Polls: polls, Last: last, Wait: a.wait})
	if !act.Blocked {
		return s
	}
	var waits []cut.Wait
	for _, call := range append([]endpoint.Activity{act}, act.Threads...) {
		for _, w := range call.Waits {
			if w.Send && !w.Taken {
				continue // parked ranks receive all that arrives
			}
			waits = append(waits, a.wait(w))
		}
	}
	// A collective or a send between two polls does not change the polled messages.
	if s.Block == nil || len(waits) > 0 {
		s.Block = &cut.Block{Call: act.Seq, Waits: waits}
	}
	return s
}

// seen returns when a look first found the main thread in its present call.
func (a *Agent) seen(act endpoint.Activity) time.Time {
	if act.Seq != a.callSeq {
		a.callSeq, a.callSince = act.Seq, time.Now()
	}
	return a.callSince
}

// signOfLife records the main thread's activity at intervals: status shows how long a call has lasted, the report when
// a run has ended.
func (a *Agent) signOfLife() {
	a.seen(a.Endpoint.Activity())
	// A later look can then tell a rank that polls from one that computes.
	_, polls := a.Endpoint.Polling()
	if points := a.Thread.Points.Load(); points != a.idlePoints || a.idleSince.IsZero() {
		a.idlePoints, a.idleSince = points, time.Now()
	}
	a.idlePolls = polls
	a.Events.Emit(events.Event{Name: events.Alive, Points: a.Thread.Points.Load()})
}

func (a *Agent) wait(w endpoint.Wait) cut.Wait {
	if w.Source != mpiwrap.AnySource {
		return cut.Wait{Source: w.Source, Had: a.Endpoint.Received(w.Source)}
	}
	out := cut.Wait{Source: cut.AnySource, Comm: w.Comm}
	for _, r := range w.Members {
		if r != a.Topology.Rank {
			out.Had += a.Endpoint.Received(r)
		}
	}
	return out
}

// callSite returns the place of the program's call; empty for a program in another process, whose code is not visible
// here.
func (a *Agent) callSite() string {
	if a.Thread.Points.Foreign != nil {
		return ""
	}
	return watch.CallSite()
}

// mainThread describes the main thread's activity, to explain why a checkpoint did not come about.
func (a *Agent) mainThread() string {
	act := a.Endpoint.Activity()
	where := a.callSite()
	if !act.Blocked {
		what := "computing"
		if len(a.polls.Waits()) > 0 {
			what = "polling"
		}
		return fmt.Sprintf("%s, %d point(s) passed%s", what, a.Thread.Points.Load(), where)
	}
	since := ""
	if act.Seq == a.callSeq {
		since = fmt.Sprintf(" for at least %v", time.Since(a.callSince).Round(time.Millisecond))
	}
	return watch.InCall(act) + since + where
}
