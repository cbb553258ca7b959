package coordinated

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/internal/codec"
	"github.com/holdfast-hpc/holdfast/storage"
)

// history is what a job without an epoch for all ranks knows of its past.
type history struct {
	Epoch    storage.Epoch `json:",omitempty"` // one that all ranks had committed; 0: none is known
	Level    string        `json:",omitempty"`
	Nodes    []string      `json:",omitempty"` // not of this run, which have or had shards of the newest epoch
	NoRecord bool          `json:",omitempty"` // an older build wrote epochs and told nothing
	Err      string        `json:",omitempty"`
}

// agreed says that the job may have had an epoch that all ranks had committed.
func (p *history) agreed() bool { return p.Epoch > 0 || p.NoRecord }

// history asks all levels of all ranks. Collective.
func (c *Checkpointer) history(ctx context.Context) (history, error) {
	mine, err := c.ownHistory(ctx)
	if err != nil {
		mine.Err = err.Error()
	}
	b, err := json.Marshal(mine)
	if err != nil {
		return history{}, err
	}
	blobs, err := c.agent.Allgather(c.life.ctx, 0, agent.StageRestore+"past", b)
	if err != nil {
		return history{}, err
	}
	var all history
	texts := make([]string, len(blobs))
	for i, b := range blobs {
		var one history
		if err := json.Unmarshal(b.Data, &one); err != nil {
			one.Err = err.Error()
		}
		texts[i] = one.Err
		all.NoRecord = all.NoRecord || one.NoRecord
		if one.Epoch > all.Epoch {
			all.Epoch, all.Level = one.Epoch, one.Level
		}
		all.Nodes = append(all.Nodes, one.Nodes...)
	}
	slices.Sort(all.Nodes)
	all.Nodes = slices.Compact(all.Nodes)
	return all, outcome.Failed("look for earlier checkpoints of the job", texts, nil)
}

// ownHistory is what this rank's levels know.
func (c *Checkpointer) ownHistory(ctx context.Context) (history, error) {
	b, err := c.levels.store.History(ctx)
	if err != nil {
		return history{}, err
	}
	p := history{Epoch: b.Epoch, Level: b.Level, NoRecord: b.NoRecord}
	states, err := c.levels.store.Survey(ctx)
	homes := b.Nodes
	for _, s := range states { // newest epoch first
		if s.Shard.Node != "" && s.Err != nil && s.Epoch == states[0].Epoch {
			homes = append(homes, s.Shard.Node)
		}
	}
	for _, n := range homes {
		if n != "" && !slices.Contains(c.topo.Nodes, n) {
			p.Nodes = append(p.Nodes, n)
		}
	}
	return p, err
}

// LostEpochsError says that the job has had checkpoints and none of them can be
// found: directories were emptied, or are not mounted, or lie on other nodes. The job
// starts over only with Options.Fresh.
type LostEpochsError struct {
	Epoch storage.Epoch // one that all ranks had committed
	Level string        // where
	Nodes []string      // that the run was on which committed it, and this one is not on
}

// Error names the newest epoch that the job committed, and where its shards may be.
func (e *LostEpochsError) Error() string {
	s := fmt.Sprintf("restore: the job has committed epoch %d at level %s, but no rank finds a checkpoint at any "+
		"level: mount or name the directories that had them", e.Epoch, e.Level)
	if len(e.Nodes) > 0 {
		s += fmt.Sprintf(", or start on node(s) %s, which the job ran on", names(e.Nodes))
	}
	return s + "; HOLDFAST_FRESH=1 starts over"
}

// MissingNodes lists the nodes whose disks may have what an error of Restore reports as
// missing: if one of them returns, a restart may succeed. It is nil for other errors,
// such as damage.
func MissingNodes(err error) []string {
	var lost *LostEpochsError
	var none *NoCommonEpochError
	switch {
	case errors.As(err, &lost):
		return lost.Nodes
	case errors.As(err, &none):
		return none.Nodes
	}
	return nil
}

// without decides what a job does that has no epoch for all ranks: nil says that it
// starts over. Collective.
func (c *Checkpointer) without(ctx context.Context, per [][]vote.Candidate, flags vote.Flags) error {
	p, err := c.history(ctx)
	if err != nil {
		return err
	}
	found := vote.Any(per) || flags.Has(vote.IsUnreadable)
	switch {
	case !found && p.Epoch == 0:
		return nil
	case !found:
		return &LostEpochsError{Epoch: p.Epoch, Level: p.Level, Nodes: p.Nodes}
	case !p.agreed():
		if c.topo.Rank == 0 {
			c.log.Warn("holdfast: starting over: the commit of the first epoch was interrupted, and not all ranks "+
				"can read it", "why", noCommon(per, flags, p.Nodes))
		}
		return nil
	}
	none := noCommon(per, flags, p.Nodes)
	none.elastic = c.opt.Elastic
	return none
}

// overviews are what rank 0 has found in the directories that all share, on its way down the
// control tree: what is the same for all, and the part of each rank below. It travels before the
// agents start, so nothing else is on the way.
//
// After 8 bytes of length come whether rank 0 has found something or could not look, bytes that are the same for
// all, and for each rank below, itself included, its number and bytes.
type overviews struct {
	found  bool
	common []byte
	own    map[int][]byte
}

// overviewPiece is how much of them is one message. A frame may be longer, so that the other side
// sees its pulse meanwhile.
const overviewPiece = 8 << 20

// encode writes them for some ranks.
func (o *overviews) encode(ranks []int) []byte {
	w := codec.Writer{B: make([]byte, 8)}
	if w.Bool(o.found); o.found {
		w.Bytes(o.common)
		for _, r := range ranks {
			w.Uint(uint64(r))
			w.Bytes(o.own[r])
		}
	}
	binary.LittleEndian.PutUint64(w.B, uint64(len(w.B)))
	return w.B
}

// decodeOverviews reads what encode has written, without its length. It keeps b.
func decodeOverviews(b []byte) (*overviews, error) {
	r := codec.Reader{B: b}
	o := &overviews{found: r.Bool(), own: map[int][]byte{}}
	if o.found {
		o.common = r.Bytes()
	}
	for o.found && len(r.B) > 0 {
		rank := int(r.Uint())
		o.own[rank] = r.Bytes()
	}
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("what rank 0 has found in the directories, %d bytes: %w", len(b), err)
	}
	return o, nil
}

// tell sends them to the ranks below, to all that it can.
func (o *overviews) tell(plane connect.Plane, t *connect.Topology) (err error) {
	for _, c := range t.Children {
		var failed error
		for b := o.encode(t.Below(c)); len(b) > 0 && failed == nil; {
			n := min(len(b), overviewPiece)
			failed = plane.Send(c, b[:n])
			b = b[n:]
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("tell rank %d what the directories have: %w", c, failed))
		}
	}
	return err
}

// hearOverviews takes them from the rank above.
func hearOverviews(ctx context.Context, plane connect.Plane, t *connect.Topology) (*overviews, error) {
	var all bytes.Buffer
	for {
		select {
		case in := <-plane.Messages():
			if in.From != t.Parent {
				return nil, fmt.Errorf("rank %d speaks before the directories are open", in.From)
			}
			all.Write(in.Payload)
		case l := <-plane.Lost():
			return nil, fmt.Errorf("rank %d is lost before the directories are open: %w", l.Rank, l.Err)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		b := all.Bytes()
		if len(b) >= 8 && uint64(len(b)) >= binary.LittleEndian.Uint64(b) {
			return decodeOverviews(b[8:])
		}
	}
}

// openTogether opens the store at rank 0 first, which tells the others what it has found. A rank
// that fails tells those below that nothing is found: they open nothing, and learn in the vote that
// follows who has failed. Collective; the error is this rank's own.
func (c *Checkpointer) openTogether(ctx context.Context, opt storage.Options) (err error) {
	o := &overviews{own: map[int][]byte{}}
	if opt.Rank == 0 {
		return errors.Join(c.openFirst(ctx, opt, o), o.tell(c.plane, c.topo))
	}
	heard, err := hearOverviews(ctx, c.plane, c.topo)
	if err == nil {
		o = heard
	}
	if err = errors.Join(err, o.tell(c.plane, c.topo)); err != nil || !o.found {
		return err
	}
	opt.Overview = &storage.Overview{Common: o.common, Own: o.own[opt.Rank]}
	c.levels.store, err = storage.Open(ctx, opt)
	return err
}

// openFirst opens the store and looks for all.
func (c *Checkpointer) openFirst(ctx context.Context, opt storage.Options, o *overviews) (err error) {
	if c.levels.store, err = storage.Open(ctx, opt); err != nil {
		return err
	}
	common, own, err := c.levels.store.Overview(ctx)
	if err != nil {
		return err
	}
	o.found, o.common = true, common
	for r := 1; r < opt.Size; r++ {
		o.own[r] = own(r)
	}
	return nil
}
