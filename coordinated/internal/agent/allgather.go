package agent

import (
	"context"
	"strings"

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
	var ch chan []cut.Blob
	if err := a.Do(ctx, func() { ch = a.contribute(stageKey{e, name}, data) }); err != nil {
		return nil, err
	}
	select {
	case blobs := <-ch:
		return blobs, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-a.ctx.Done():
		return nil, context.Cause(a.ctx)
	case <-a.done:
		return nil, ErrClosed
	}
}

// Contribute is Allgather for a rank that does not wait for the outcome.
func (a *Agent) Contribute(ctx context.Context, e cut.Epoch, name string, data []byte) error {
	return a.Do(ctx, func() { a.contribute(stageKey{e, name}, data) })
}

// contribute adds this rank's blob; the channel delivers all ranks' blobs once.
func (a *Agent) contribute(key stageKey, data []byte) chan []cut.Blob {
	ch := make(chan []cut.Blob, 1)
	a.waiting[key] = ch
	rank := a.Topology.Rank
	a.collect(rank, cut.Message{Epoch: key.epoch, Stage: key.name, Blobs: []cut.Blob{{Rank: rank, Data: data}}})
	return ch
}

// collect takes in blobs of this rank or of a child's subtree.
func (a *Agent) collect(from int, msg cut.Message) {
	up, complete := a.gather.Add(from, msg.Epoch, msg.Stage, msg.Blobs)
	switch {
	case !complete:
	case a.Topology.Parent >= 0:
		a.send(a.Topology.Parent, up)
	case msg.Stage == stageClose:
		a.closing = append(up.Blobs, cut.Blob{}) // not nil
		a.tryEnd()
	case strings.HasPrefix(msg.Stage, stageStatus): // nobody else asked
		key := stageKey{up.Epoch, up.Stage}
		if ch := a.waiting[key]; ch != nil {
			delete(a.waiting, key)
			ch <- up.Blobs
		}
	default:
		up.Kind = cut.KindPublish
		a.publish(up)
	}
}

// publish hands the outcome to this rank and the ranks below.
func (a *Agent) publish(msg cut.Message) {
	for _, n := range a.Topology.Children {
		a.send(n, msg)
	}
	if msg.Stage == stageClose {
		a.verdicts <- Verdict{Ended: true}
		return
	}
	key := stageKey{msg.Epoch, msg.Stage}
	if ch := a.waiting[key]; ch != nil {
		delete(a.waiting, key)
		ch <- msg.Blobs
	}
}

// tryEnd lets all ranks leave Close once no epoch is in progress: whoever left
// sooner would be missing at the cut.
func (a *Agent) tryEnd() {
	if a.closing == nil || !a.machine.Resting() {
		return
	}
	a.closing = nil
	a.publish(cut.Message{Kind: cut.KindPublish, Stage: stageClose})
}
