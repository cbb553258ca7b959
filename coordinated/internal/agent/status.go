package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/watch"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/job"
)

// Next returns the phase of the cut and the next checkpoint that is due by the clock, or nil.
func (a *Agent) Next(ctx context.Context) (phase string, due *job.NextStatus, err error) {
	err = a.Do(ctx, func() { phase, due = a.machine.String(), a.Triggers.Status() })
	return phase, due, err
}

func (a *Agent) rankStatus() job.RankStatus {
	state, since := a.Thread.Doing()
	st := a.Status()
	st.Rank, st.State, st.Points = a.Topology.Rank, state, a.Thread.Points.Load()
	if p := a.machine.Phase(); p != "" {
		st.Epoch, st.Phase = uint64(a.machine.Epoch()), p
	}
	if state == watch.StateRunning {
		since = a.inCall(&st, since)
	}
	st.Seconds = time.Since(since).Seconds()
	return st
}

// inCall fills in the call that the program is in, and returns since when at least.
func (a *Agent) inCall(st *job.RankStatus, since time.Time) time.Time {
	act := a.Endpoint.Activity()
	if act.Blocked {
		st.State, st.Call, st.Comm = watch.StateBlocked, act.Op, act.Comm
		st.Waits = strings.TrimSpace(watch.Describe(act.Waits))
		return a.seen(act)
	}
	last, polls := a.Endpoint.Polling()
	if polls != a.idlePolls && !a.idleSince.IsZero() && st.Points == a.idlePoints {
		st.State, st.Waits = watch.StatePolling, strings.TrimSpace(watch.Describe([]endpoint.Wait{last}))
		return a.idleSince
	}
	return since
}

// stageStatus begins the stages that ask all ranks how they are.
const stageStatus = "status "

// statusPatience is how long rank 0 waits for the answers.
const statusPatience = 2 * time.Second

// ask sends a question down the tree; the answers come up it. At rank 0, on the agent's
// goroutine.
func (a *Agent) ask(stage string) (stageKey, chan []cut.Blob) {
	a.asked++
	key := stageKey{0, fmt.Sprint(stage, a.asked)}
	ch := make(chan []cut.Blob, 1)
	a.waiting[key] = waiter{ch: ch}
	a.answerStatus(cut.Message{Kind: cut.KindStatus, Stage: key.name})
	return key, ch
}

// answerStatus passes the question on and answers it for this rank.
func (a *Agent) answerStatus(msg cut.Message) {
	for _, n := range a.Topology.Children {
		a.send(n, msg)
	}
	var answer any = a.rankStatus()
	if strings.HasPrefix(msg.Stage, stageWaits) {
		answer = a.doingNow()
	}
	data, err := json.Marshal(answer)
	if err != nil {
		a.Log.Error("holdfast: status", "error", err)
	}
	rank := a.Topology.Rank
	a.collect(rank, cut.Message{Stage: msg.Stage, Blobs: []cut.Blob{{Rank: rank, Data: data}}})
}

// Ranks asks all ranks, at rank 0. Those that do not answer in time are silent.
func (a *Agent) Ranks() ([]job.RankStatus, error) {
	var key stageKey
	var ch chan []cut.Blob
	if err := a.Do(a.ctx, func() { key, ch = a.ask(stageStatus) }); err != nil {
		return nil, err
	}
	var blobs []cut.Blob
	select {
	case blobs = <-ch:
	case <-time.After(statusPatience):
		if err := a.Do(a.ctx, func() {
			blobs = a.gather.Abandon(key.epoch, key.name)
			delete(a.waiting, key)
		}); err != nil {
			return nil, err
		}
	case <-a.ctx.Done():
		return nil, ErrClosed
	}
	out := make([]job.RankStatus, a.Topology.Size())
	for r := range out {
		out[r] = job.RankStatus{Rank: r, Node: a.Topology.Nodes[r], State: watch.StateSilent}
	}
	for _, b := range blobs {
		if b.Rank < 0 || b.Rank >= len(out) {
			continue
		}
		if err := json.Unmarshal(b.Data, &out[b.Rank]); err != nil {
			return nil, fmt.Errorf("status of rank %d: %w", b.Rank, err)
		}
		out[b.Rank].Rank, out[b.Rank].Node = b.Rank, a.Topology.Nodes[b.Rank]
	}
	return out, nil
}
