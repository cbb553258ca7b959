package supervise

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

// unrestorable decides what follows a start that found checkpoints and could restore none.
// Data that are on the disk of a dead node may come back with it, so it is waited for.
// A job that has had checkpoints is begun anew only within --begin-anew, and never one that
// had any at global, or that began from something.
func (r *runner) unrestorable(ctx context.Context, a *attempt) (code int, over bool) {
	why := a.last.Unrestorable
	if !a.last.Missing {
		r.say("giving up: %s", why)
		return exitBad, true
	}
	r.lacks = true
	limit := r.flags.WaitNodes
	if r.mayBegin() {
		limit = min(limit, r.work()) // to wait for longer than that work took gains nothing
	}
	switch r.await(ctx, a.nodes, limit, why) {
	case awaitBack:
		return 0, false
	case awaitStopped:
		return r.left(ctx, ExitStopped), true
	}
	if r.mayBegin() {
		r.say("no checkpoint of this job ever came to global, and those on its nodes cannot be read any more: "+
			"starting from the beginning, as --begin-anew %v allows; at most %v of work are lost: %s",
			r.flags.BeginAnew, r.work().Round(time.Second), why)
		r.fresh = true
		return 0, false
	}
	r.say("giving up: %s", why)
	if r.virgin() {
		r.say("no checkpoint of this job ever came to global, and at most %v of work would be lost: HOLDFAST_FRESH=1 "+
			"begins anew now, --begin-anew %v lets such a job do so by itself",
			r.work().Round(time.Second), roundUp(r.work()))
	}
	return exitBad, true
}

// roundUp is a limit that d is within, as a person would set it.
func roundUp(d time.Duration) time.Duration { return d.Truncate(time.Hour) + time.Hour }

// mayBegin reports whether the job may begin anew without asking.
func (r *runner) mayBegin() bool { return r.virgin() && r.work() <= r.flags.BeginAnew }

// virgin reports whether the job began from nothing, and nothing of it ever came to global.
func (r *runner) virgin() bool { return r.began && !r.safe }

// work is how long the job had computed, at most, when it lost what it now misses.
func (r *runner) work() time.Duration {
	if r.death.at.After(r.begunAt) {
		return r.death.at.Sub(r.begunAt)
	}
	return time.Since(r.begunAt)
}

// How a wait for nodes ends.
type awaited int

const (
	awaitOver    awaited = iota // none has come back in time
	awaitBack                   // one has, or lives and was not in the start
	awaitStopped                // told to stop
)

// awaitEvery is how often dead nodes are looked at while they are waited for.
const awaitEvery = 3 * time.Second

// await waits until a node that may have what is missing is there for the next start.
func (r *runner) await(ctx context.Context, tried []string, limit time.Duration, why string) awaited {
	elsewhere := func() bool {
		return slices.ContainsFunc(r.homes, func(n string) bool { return !r.isDead(n) && !slices.Contains(tried, n) })
	}
	if elsewhere() {
		return awaitBack
	}
	if len(r.dead) == 0 || limit <= 0 {
		return awaitOver
	}
	r.say("waiting up to %v for %s to come back: %s", limit.Round(time.Second),
		strings.Join(slices.Sorted(maps.Keys(r.dead)), ", "), why)
	end := time.Now().Add(limit)
	if by := r.deadline.Add(-r.lead); !r.deadline.IsZero() && by.Before(end) {
		end = by
	}
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	for {
		select {
		case s := <-r.signals:
			if _, near := r.announces(ctx, s); r.isStop(s) || near != "" {
				r.say("%v: not waiting any longer", s)
				return awaitStopped
			}
		case <-tick.C:
		}
		before := len(r.dead)
		r.examine(ctx, nil, false, whileStarting)
		switch {
		case len(r.dead) < before || elsewhere():
			return awaitBack
		case time.Now().After(end):
			r.say("none of them has come back")
			return awaitOver
		}
	}
}

// openFailed decides what follows a start whose Open failed: where that was the fault of some
// nodes, a disk that cannot be written to for one, and spare ones can take their place, they
// do. The ranks themselves have said why.
func (r *runner) openFailed(a *attempt) (code int, over bool) {
	left := 0
	for _, n := range r.nodes {
		if _, unfit := r.unfit[n]; !unfit && !r.isDead(n) && !slices.Contains(a.unfit, n) {
			left++
		}
	}
	if len(a.unfit) == 0 || left < max(r.width, 1) || r.starts > r.flags.MaxRestarts {
		r.say("giving up: %s", a.refused)
		return exitBad, true
	}
	if r.unfit == nil {
		r.unfit = map[string]string{}
	}
	for _, n := range a.unfit {
		r.unfit[n] = a.refused
		r.say("node %s is not used any more, a spare one takes its place: %s", n, a.refused)
	}
	return 0, false
}
