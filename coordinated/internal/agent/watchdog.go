package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/watch"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
)

// A rank whose main thread has waited for long in an MPI call, in Restore, or in Close reports it to rank 0, which asks
// all ranks for their state. If some can never go on, because of a closed rank or in a circle, rank 0 logs each with
// its call and the ranks that it waits for. If nothing has moved for Options.WaitTimeout, it ends the job. Ranks that
// compute, or that wait for one that does, may take for ever. The activity of a program in another process is not
// visible: its ranks may wait for each other in a call ten times as long.

// stageWaits begins the stages of these questions.
const stageWaits = stageStatus + "waits "

// pollersWait multiplies the time that ranks may wait if one polls: it may compute between the polls.
const pollersWait = 10

// Remedies for ranks that wait for ever, and for a missing rank.
const (
	stuckRemedy = "; on an error a rank must call Abort or CloseOrAbort, not Close"
	lateRemedy  = "; all ranks must make this call"
)

// watchdog is the agent's part in this.
type watchdog struct {
	tick  *time.Ticker
	every time.Duration

	since    time.Time // the main thread has entered Close, or Restore
	reported time.Time // last report to the parent, or at rank 0
	polls    uint64    // at the last question
	points   uint64

	// At rank 0.
	asked bool // a question is under way
	next  time.Time
	pause sleep.Backoff
	keys  []string // of the ranks that wait, at the first question that found them
	first time.Time
}

func newWatchdog(timeout time.Duration) watchdog {
	every := min(max(timeout/8, 10*time.Millisecond), 10*time.Second)
	pause := sleep.Backoff{First: 2 * every, Longest: 5 * time.Minute}
	return watchdog{every: every, pause: pause, tick: time.NewTicker(every)}
}

// lookForWaits runs at each tick.
func (a *Agent) lookForWaits() {
	now := time.Now()
	since := a.watchdog.since
	if act := a.Endpoint.Activity(); since.IsZero() && act.Blocked {
		since = a.seen(act)
	}
	if !since.IsZero() && now.Sub(since) >= a.WaitTimeout/4 {
		a.sayWaiting()
	}
}

// sayWaiting reports to rank 0 that this rank waits, at bounded intervals.
func (a *Agent) sayWaiting() {
	now := time.Now()
	if now.Sub(a.watchdog.reported) < a.watchdog.every/2 {
		return
	}
	a.watchdog.reported = now
	if a.Topology.Parent >= 0 {
		a.send(a.Topology.Parent, cut.Message{Kind: cut.KindWaiting})
		return
	}
	w := &a.watchdog
	if w.asked || now.Before(w.next) || a.left {
		return
	}
	w.asked = true
	_, ch := a.ask(stageWaits)
	a.Go(func() {
		select {
		case blobs := <-ch:
			_ = a.Do(a.ctx, func() { a.weigh(blobs) }) // closed: no call waits
		case <-a.ctx.Done():
		case <-a.done:
		}
	})
}

// weigh judges the reports of all ranks.
func (a *Agent) weigh(blobs []cut.Blob) {
	w := &a.watchdog
	w.asked = false
	all := make([]watch.ThreadState, len(blobs))
	for i, b := range blobs {
		if err := json.Unmarshal(b.Data, &all[i]); err != nil || all[i].Rank != i {
			a.Log.Error("holdfast: malformed report of what a rank waits for", "rank", b.Rank, "error", err)
			return
		}
	}
	waiting, limit := watch.Stuck(all), a.WaitTimeout
	intro, text, remedy, culprit := stuckBy, "", stuckRemedy, 0
	if len(waiting) > 0 {
		text, culprit = watch.ExplainStuck(all, waiting), watch.Culprit(all, waiting)
	} else if on, late := watch.Late(all); len(late) > 0 {
		waiting, culprit, intro, remedy = on, late[0], "", lateRemedy
		text = fmt.Sprintf("rank(s) %s wait for rank(s) %s in %s", outcome.Ranks(on), outcome.Ranks(late),
			all[on[0]].Calling)
		if !slices.ContainsFunc(late, func(r int) bool { return all[r].Closed }) {
			limit = pollersWait * a.WaitTimeout
		}
	}
	if len(waiting) == 0 { // somebody computes: ask again, ever more seldom
		w.keys = nil
		w.next = time.Now().Add(w.pause.Next())
		return
	}
	w.pause.Last = 0
	w.next = time.Now().Add(w.every)
	keys := make([]string, 0, len(waiting))
	for _, r := range waiting {
		keys = append(keys, fmt.Sprint(r, ": ", all[r].Key)) // ranks that compute alike have equal ones
		if all[r].Polls {
			limit = pollersWait * a.WaitTimeout
		}
	}
	if !slices.Equal(keys, w.keys) {
		w.keys, w.first = keys, time.Now()
		a.Log.Warn("holdfast: "+intro+text, "job ends in", limit)
		return
	}
	if time.Since(w.first) >= limit {
		a.leave(-1, cut.Message{Kind: cut.KindLost, Rank: culprit, Stage: abortedBy + stuckBy + text + remedy})
	}
}

func (a *Agent) doingNow() watch.ThreadState {
	act := a.Endpoint.Activity()
	last, polls := a.Endpoint.Polling()
	points, calls := a.Thread.Points.Load(), a.Thread.Calls.Load()
	d := watch.ThreadState{Rank: a.Topology.Rank, Key: fmt.Sprint(act.Seq, points+calls), Calls: calls,
		Closed:        a.Thread.Closed.Load(),
		BeforeRestore: !a.Thread.Restored.Load(),
		Entered:       map[string]uint64{}, Sizes: map[string]int{}}
	for _, k := range a.Endpoint.Collectives() {
		d.Entered[k.Comm], d.Sizes[k.Comm] = k.Entered, k.Size
	}
	if call := a.Thread.Calling.Load(); call != nil {
		d.Calling = *call
	}
	state, _ := a.Thread.Doing()
	grown := polls != a.watchdog.polls && points == a.watchdog.points && a.watchdog.points+a.watchdog.polls > 0
	a.watchdog.polls, a.watchdog.points = polls, points
	switch {
	case d.Closed:
		d.Text = "in Close" + a.Thread.Placed()
	case state == watch.StateRestoring && a.Thread.Meeting.Load():
		d.InRestore, d.Text = true, "in Restore"+a.Thread.Placed()
	case state != watch.StateRunning && state != watch.StateStarting || a.Endpoint.Concurrent() && !act.Every:
		d.Text = state // the library sees to it that this ends
	case act.Blocked && act.Comm == a.Private && act.Comm != "":
		d.InFinalize, d.Text = true, "in Finalize without Close"+a.callSite()
	case act.Blocked:
		d.Blocked(act, a.callSite())
	case grown:
		d.Polls, d.Text = true, "polling"+watch.Describe([]endpoint.Wait{last})+a.callSite()
		d.WaitFor([]endpoint.Wait{last})
	default:
		d.Text = "computing"
	}
	return d
}
