package agent

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
)

// stageKey names one allgather.
type stageKey struct {
	epoch cut.Epoch
	name  string
}

// The stages that belong to no epoch.
const (
	stageClose   = "close"
	StageBye     = "bye"      // behind all epochs, in Close
	StageRestore = "restore " // begins those of Restore, in which main threads wait
)

// Allgather gives every rank's data to all ranks, over the control plane, in
// order of rank. It is collective, from any goroutine; name and epoch must be
// the same everywhere and used once.
func (a *Agent) Allgather(ctx context.Context, e cut.Epoch, name string, data []byte) ([]cut.Blob, error) {
	if strings.HasPrefix(name, StageRestore) {
		a.Thread.Meeting.Store(true)
		defer a.Thread.Meeting.Store(false)
	}
	return a.Meet(ctx, cut.Meeting{Epoch: e, Stage: name, Data: data})
}

// stageNode begins the names of stages at which the ranks of a node meet.
const stageNode = "node "

// Meet is Allgather for the ranks of a meeting.
func (a *Agent) Meet(ctx context.Context, m cut.Meeting) ([]cut.Blob, error) {
	key := stageKey{m.Epoch, m.Stage}
	if m.Node {
		key.name = stageNode + m.Stage
	}
	var ch chan []cut.Blob
	if err := a.Do(ctx, func() { ch = a.contribute(key, m) }); err != nil {
		return nil, err
	}
	var err error
	select {
	case blobs := <-ch:
		return blobs, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-a.ctx.Done():
		err = context.Cause(a.ctx)
	case <-a.done:
		err = ErrClosed
	}
	select {
	case blobs := <-ch: // the outcome came before the end, and may have caused it
		return blobs, nil
	default:
		return nil, err
	}
}

// Contribute is Allgather for a rank that does not wait for the outcome.
func (a *Agent) Contribute(ctx context.Context, e cut.Epoch, name string, data []byte) error {
	return a.Do(ctx, func() { a.contribute(stageKey{e, name}, cut.Meeting{Data: data}) })
}

// contribute adds this rank's blob; the channel delivers the blobs of the meeting once.
func (a *Agent) contribute(key stageKey, m cut.Meeting) chan []cut.Blob {
	ch := make(chan []cut.Blob, 1)
	a.waiting[key] = waiter{ch, m}
	rank := a.Topology.Rank
	a.collect(rank, cut.Message{Epoch: key.epoch, Stage: key.name, Blobs: []cut.Blob{{Rank: rank, Data: m.Data}}})
	return ch
}

// collect takes in blobs of this rank or of a child's subtree.
func (a *Agent) collect(from int, msg cut.Message) {
	gather, parent, _ := a.way(msg.Stage)
	up, complete := gather.Add(from, msg.Epoch, msg.Stage, msg.Blobs)
	switch {
	case !complete:
	case parent >= 0:
		a.send(parent, up)
	case msg.Stage == stageClose:
		a.closing = append(up.Blobs, cut.Blob{}) // not nil
		a.tryEnd()
	case strings.HasPrefix(msg.Stage, stageStatus): // only this rank asked
		key := stageKey{up.Epoch, up.Stage}
		if w, ok := a.waiting[key]; ok {
			delete(a.waiting, key)
			w.ch <- up.Blobs
		}
	default:
		up.Kind = cut.KindPublish
		a.publish(up)
	}
}

// waiter waits for the outcome of a stage.
type waiter struct {
	ch chan []cut.Blob
	m  cut.Meeting
}

// way returns the path by which the ranks of a stage reach each other: all ranks use the tree, the ranks of a node its
// first rank.
func (a *Agent) way(stage string) (g *cut.Gather, parent int, children []int) {
	switch {
	case !strings.HasPrefix(stage, stageNode):
		return a.gather, a.Topology.Parent, a.Topology.Children
	case a.mates[0] != a.Topology.Rank:
		return a.nodeGather, a.mates[0], nil
	}
	return a.nodeGather, -1, a.mates[1:]
}

// publish delivers the outcome to this rank and the ranks below. The whole outcome takes only edges that lead to a rank
// which needs it.
func (a *Agent) publish(msg cut.Message) {
	key := stageKey{msg.Epoch, msg.Stage}
	w, waits := a.waiting[key]
	delete(a.waiting, key)
	m := &w.m
	brief := sync.OnceValue(func() cut.Message {
		b := msg
		b.Blobs = m.Brief(msg.Blobs)
		return b
	})
	_, _, children := a.way(msg.Stage)
	for _, n := range children {
		if m.Brief == nil || slices.ContainsFunc(a.Topology.Below(n), m.Whole) {
			a.send(n, msg)
		} else {
			a.send(n, brief())
		}
	}
	switch {
	case msg.Stage == stageClose:
		a.verdicts <- Verdict{Ended: true}
	case waits && m.Brief != nil && !m.Whole(a.Topology.Rank):
		w.ch <- brief().Blobs
	case waits:
		w.ch <- msg.Blobs
	}
}

// tryEnd lets all ranks leave Close once no epoch is in progress: a rank that left sooner would be missing at the cut.
func (a *Agent) tryEnd() {
	if a.closing == nil || !a.machine.Resting() {
		return
	}
	a.closing = nil
	a.publish(cut.Message{Kind: cut.KindPublish, Stage: stageClose})
}
