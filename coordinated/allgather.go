package coordinated

import (
	"context"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
)

// allgather gives every rank's data to all ranks, over the control plane, in
// order of rank. It is collective, from any goroutine; name and epoch must be
// the same everywhere and used once.
func (c *Checkpointer) allgather(ctx context.Context, e cut.Epoch, name string, data []byte) ([]cut.Blob, error) {
	if strings.HasPrefix(name, stageRestore) {
		c.meeting.Store(true)
		defer c.meeting.Store(false)
	}
	var ch chan []cut.Blob
	if err := c.agent.do(ctx, func() { ch = c.agent.contribute(stageKey{e, name}, data) }); err != nil {
		return nil, err
	}
	select {
	case blobs := <-ch:
		return blobs, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	case <-c.agent.done:
		return nil, ErrClosed
	}
}

// contribute adds this rank's blob; the channel delivers all ranks' blobs once.
func (a *agent) contribute(key stageKey, data []byte) chan []cut.Blob {
	ch := make(chan []cut.Blob, 1)
	a.waiting[key] = ch
	rank := a.c.world.Rank()
	a.collect(rank, cut.Message{Epoch: key.epoch, Stage: key.name, Blobs: []cut.Blob{{Rank: rank, Data: data}}})
	return ch
}

// collect takes in blobs of this rank or of a child's subtree.
func (a *agent) collect(from int, msg cut.Message) {
	up, complete := a.gather.Add(from, msg.Epoch, msg.Stage, msg.Blobs)
	switch {
	case !complete:
	case a.c.topo.parent >= 0:
		a.send(a.c.topo.parent, up)
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
func (a *agent) publish(msg cut.Message) {
	for _, n := range a.c.topo.children {
		a.send(n, msg)
	}
	if msg.Stage == stageClose {
		a.c.verdicts <- verdict{ended: true}
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
func (a *agent) tryEnd() {
	if a.closing == nil || !a.machine.Resting() {
		return
	}
	a.closing = nil
	a.publish(cut.Message{Kind: cut.KindPublish, Stage: stageClose})
}
