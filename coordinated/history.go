package coordinated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
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
	return all, vote.Failed("look for earlier checkpoints of the job", texts, nil)
}

// ownHistory is what this rank's levels know.
func (c *Checkpointer) ownHistory(ctx context.Context) (history, error) {
	b, err := c.levels.store.Begun(ctx)
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
