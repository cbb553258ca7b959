package coordinated

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/watch"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/storage"
)

// The states of a main thread, as holdfast status shows them. While the library
// leaves it alone it is running, blocked in an MPI call, or polling.
const (
	stateStarting  = "starting"
	stateRestoring = "restoring"
	stateRunning   = "running"
	stateBlocked   = "blocked"
	statePolling   = "polling"
	stateParked    = "parked"
	stateDraining  = "draining"
	stateCapturing = "capturing"
	stateHeld      = "held" // captured, and not let go yet: no room in the pool
	stateStopping  = "stopping"
	stateClosed    = "closed" // in Close, or beyond
	stateSilent    = "silent" // did not answer
)

// doing is what the library has the main thread do.
type doing struct {
	state string
	since time.Time
}

// now notes what the main thread does from now on.
func (c *Checkpointer) now(state string) { c.doing.Store(&doing{state, time.Now()}) }

// work is one Work under way.
type work struct {
	job.Work
	began  time.Time
	copied int64 // bytes that had been copied to the level when it began; -1: it is not copying
}

// begin notes and logs the beginning of a step in the background, and returns what logs
// its end.
func (c *Checkpointer) begin(s persist.Step) (end func(bytes, stored int64, err error)) {
	ev, last := events.Event{Name: events.Redundancy, Epoch: uint64(s.Epoch), Level: s.Level}, events.Event{}
	w := &work{Work: job.Work{Epoch: ev.Epoch, Level: s.Level, Total: s.Bytes}, began: time.Now(),
		copied: c.store.CopiedTo(s.Level)}
	switch s.Name {
	case persist.Write:
		ev.Name, w.copied = events.Write, -1
	case persist.Copy:
		if storage.TraitsOf(s.Level).Shared {
			ev.Name = events.Flush
		}
	case persist.Rebuild:
		last.What = s.Name
	default:
		ev.Name = events.Vote
		logged := c.events.Span(ev)
		return func(_, _ int64, err error) { logged(events.Event{What: s.Name}, err) }
	}
	w.What = ev.Name
	c.stats.mu.Lock()
	c.stats.behind = append(c.stats.behind, w)
	c.stats.mu.Unlock()
	logged := c.events.Span(ev)
	return func(bytes, stored int64, err error) {
		c.stats.mu.Lock()
		c.stats.behind = slices.DeleteFunc(c.stats.behind, func(o *work) bool { return o == w })
		c.stats.mu.Unlock()
		c.metrics.Wrote(ev.Name, s.Level, stored, time.Since(w.began))
		last.Bytes, last.Stored = bytes, stored
		logged(last, err)
	}
}

// working lists what is being done in the background.
func (c *Checkpointer) working() []job.Work {
	c.stats.mu.Lock()
	defer c.stats.mu.Unlock()
	var out []job.Work
	for _, w := range c.stats.behind {
		x := w.Work
		x.Seconds = time.Since(w.began).Seconds()
		if w.copied >= 0 {
			x.Bytes = c.store.CopiedTo(x.Level) - w.copied
		}
		out = append(out, x)
	}
	return out
}

// rankStatus looks at this rank.
func (a *agent) rankStatus() job.RankStatus {
	c := a.c
	d := c.doing.Load()
	st := job.RankStatus{Rank: c.world.Rank(), State: d.state, Points: c.points.load(), Work: c.working()}
	if p := a.machine.Phase(); p != "" {
		st.Epoch, st.Phase = uint64(a.machine.Epoch()), p
	}
	since := d.since
	if d.state == stateRunning {
		since = a.inCall(&st, since)
	}
	st.Seconds = time.Since(since).Seconds()
	for _, es := range c.Stats().Epochs {
		st.Last, st.Cost, st.Level, st.Fault = uint64(es.Epoch), es.Blocked.Seconds(), "", ""
		for _, l := range c.levels {
			if _, ok := es.Durable[l]; ok {
				st.Level = l
			}
		}
		if es.Err != nil {
			st.Fault = es.Err.Error()
		}
	}
	return st
}

// inCall says in which call the program is, and since when at least.
func (a *agent) inCall(st *job.RankStatus, since time.Time) time.Time {
	act := a.c.endpoint.Activity()
	if act.Blocked {
		if act.Seq != a.callSeq {
			a.callSeq, a.callSince = act.Seq, time.Now()
		}
		st.State, st.Call, st.Comm = stateBlocked, act.Op, act.Comm
		st.Waits = strings.TrimSpace(watch.Describe(act.Waits))
		return a.callSince
	}
	last, polls := a.c.endpoint.Polling()
	if polls != a.idlePolls && !a.idleSince.IsZero() && st.Points == a.idlePoints {
		st.State, st.Waits = statePolling, strings.TrimSpace(watch.Describe([]endpoint.Wait{last}))
		return a.idleSince
	}
	return since
}

// lookIdle remembers polls and Points, so that a later look can tell a rank that
// polls from one that computes.
func (a *agent) lookIdle() {
	_, polls := a.c.endpoint.Polling()
	if points := a.c.points.load(); points != a.idlePoints || a.idleSince.IsZero() {
		a.idlePoints, a.idleSince = points, time.Now()
	}
	a.idlePolls = polls
}

// stageStatus begins the stages that ask all ranks how they are.
const stageStatus = "status "

// statusPatience is how long rank 0 waits for the answers.
const statusPatience = 2 * time.Second

// ask sends a question down the tree; the answers come up it. At rank 0, on the agent's
// goroutine.
func (a *agent) ask(stage string) (stageKey, chan []cut.Blob) {
	a.asked++
	key := stageKey{0, fmt.Sprint(stage, a.asked)}
	ch := make(chan []cut.Blob, 1)
	a.waiting[key] = ch
	a.answerStatus(cut.Message{Kind: cut.KindStatus, Stage: key.name})
	return key, ch
}

// answerStatus passes the question on and answers it for this rank.
func (a *agent) answerStatus(msg cut.Message) {
	for _, n := range a.c.topo.children {
		a.send(n, msg)
	}
	var answer any = a.rankStatus()
	if strings.HasPrefix(msg.Stage, stageWaits) {
		answer = a.doingNow()
	}
	data, err := json.Marshal(answer)
	if err != nil {
		a.c.log.Error("holdfast: status", "error", err)
	}
	rank := a.c.world.Rank()
	a.collect(rank, cut.Message{Stage: msg.Stage, Blobs: []cut.Blob{{Rank: rank, Data: data}}})
}

// rankStates asks all ranks. Those that do not answer in time are silent.
func (c *Checkpointer) rankStates() ([]job.RankStatus, error) {
	var key stageKey
	var ch chan []cut.Blob
	if err := c.agent.do(c.ctx, func() { key, ch = c.agent.ask(stageStatus) }); err != nil {
		return nil, err
	}
	timer := time.NewTimer(statusPatience)
	defer timer.Stop()
	var blobs []cut.Blob
	select {
	case blobs = <-ch:
	case <-timer.C:
		if err := c.agent.do(c.ctx, func() {
			blobs = c.agent.gather.Abandon(key.epoch, key.name)
			delete(c.agent.waiting, key)
		}); err != nil {
			return nil, err
		}
	case <-c.ctx.Done():
		return nil, ErrClosed
	}
	out := make([]job.RankStatus, c.world.Size())
	for r := range out {
		out[r] = job.RankStatus{Rank: r, Node: c.topo.nodes[r], State: stateSilent}
	}
	for _, b := range blobs {
		if b.Rank < 0 || b.Rank >= len(out) {
			continue
		}
		if err := json.Unmarshal(b.Data, &out[b.Rank]); err != nil {
			return nil, fmt.Errorf("status of rank %d: %w", b.Rank, err)
		}
		out[b.Rank].Rank, out[b.Rank].Node = b.Rank, c.topo.nodes[b.Rank]
	}
	return out, nil
}
