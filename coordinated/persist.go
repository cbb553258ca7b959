package coordinated

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/storage"
)

// persistence is what the main thread may wait for.
type persistence struct {
	put      chan struct{} // closed when the captured bytes are no longer needed
	all      chan struct{} // closed when the epoch is at all levels, or will not be
	captures <-chan error  // delivers once the memory of all ranks is captured, if that matters
	final    bool          // the program is to stop after it
	flush    *persist.Turn // of this epoch
	levels   []string      // at which it is committed, nearest first; read after all
	err      error         // read after all
}

// persist writes a captured epoch in the background: put, vote, commit at the
// first level, then copy outward level by level. A rank whose capture failed
// takes part in the votes with its error. A final epoch goes only as far out as
// there is time. Called by the main thread at the
// cut, in the same order of epochs on all ranks; captures delivers what came of
// awaitCaptures, before which nobody votes.
func (c *Checkpointer) persist(e storage.Epoch, s *capture.Snapshot, captureErr error, final bool,
	captures <-chan error) *persistence {
	p := &persistence{put: make(chan struct{}), all: make(chan struct{}), final: final, captures: captures}
	start := time.Now()
	before, f := c.nextFlush()
	p.flush = f
	release := c.store.Retain(c.ctx, e) // ranks copy from and to each other's directories
	c.writers.Go(func() {
		defer close(p.all)
		defer f.End()
		defer release()
		l := c.state.Lease(c.ctx, s)
		from, failed, err := c.persistFirst(e, s, l, captureErr, p, start)
		if err == nil && final && from+1 < len(c.levels) {
			c.noteUnflushed(e)
			err = c.learnEnd(e)
		}
		if err == nil {
			err = c.persistOuter(e, l, p, before, start, from)
		}
		err = errors.Join(failed, err, l.End())
		p.err = err
		if err != nil {
			c.countFailure(e, err)
			var late *GraceError
			if errors.As(err, &late) {
				if c.world.Rank() == 0 {
					c.log.Warn("holdfast: final checkpoint: "+late.Error(), "epoch", e)
				}
				return
			}
			c.complain(e, p.levels, err)
		}
	})
	return p
}

// complain says at rank 0 that an epoch is not where it should be.
func (c *Checkpointer) complain(e storage.Epoch, at []string, err error) {
	switch {
	case c.ctx.Err() != nil || c.world.Rank() != 0:
	case errors.Is(err, persist.ErrYields):
		c.log.Warn("holdfast: not copied any further, the final checkpoint goes first", "epoch", e)
	case len(at) == 0:
		c.log.Error("holdfast: checkpoint failed, older epochs stay", "epoch", e, "error", err)
	default:
		c.log.Error("holdfast: checkpoint failed at a level, it is at "+strings.Join(at, ", ")+" only", "epoch", e,
			"error", err)
	}
}

// bases are the places of the levels that an epoch can come to from memory: the
// first, and where that fails the global one.
func (c *Checkpointer) bases() []int {
	if last := len(c.levels) - 1; last > 0 && c.levels[last] == storage.LevelGlobal {
		return []int{0, last}
	}
	return []int{0}
}

// persistFirst brings the epoch to the first level, or where that fails straight to
// the global one, and frees the captured bytes unless the further levels can have them
// from there. from is the place of the level that has it; failed is why the first does
// not, and err why none does.
func (c *Checkpointer) persistFirst(e storage.Epoch, s *capture.Snapshot, l *capture.Lease, captureErr error,
	p *persistence, start time.Time) (from int, failed, err error) {
	free := sync.OnceFunc(func() {
		if err != nil || from == len(c.levels)-1 || !s.InMemory() {
			err = errors.Join(err, l.End())
		} else {
			l.Done()
		}
		close(p.put)
	})
	wait := sync.OnceValue(func() error { return <-p.captures })
	bases := c.bases()
	for n := range bases {
		from = bases[n]
		var info storage.ShardInfo
		info, err = c.putAt(e, s, l, c.levels[from], captureErr)
		if n == len(bases)-1 || s == nil || s.Live { // what is live is to be let go now
			free()
		}
		if s != nil && s.Live {
			captureErr = errors.Join(captureErr, errLive)
		}
		c.phase("put")
		err = c.commit(e, c.levels[from], []storage.ShardInfo{info}, errors.Join(err, wait()))
		if err == nil || c.ctx.Err() != nil || vote.NothingToWrite(err) {
			break
		}
		failed = errors.Join(failed, err)
	}
	free()
	c.phase("committed")
	c.agentDone(e, err)
	if err != nil {
		return from, nil, errors.Join(failed, err)
	}
	c.committed(e, c.levels[from], p, start)
	return from, failed, nil
}

// errLive is why an epoch that the first level refused does not go to another.
var errLive = errors.New("there was no room to keep what was captured, and the program has gone on")

// putAt writes the captured bytes to a level.
func (c *Checkpointer) putAt(e storage.Epoch, s *capture.Snapshot, l *capture.Lease, level string,
	captureErr error) (info storage.ShardInfo, err error) {
	if captureErr != nil {
		return info, vote.Uncaptured(captureErr)
	}
	end := c.begin(events.Write, e, level, s.Bytes)
	info, err = persist.Attend(c.ctx, c.ops, "write", level, l, func(ctx context.Context) (storage.ShardInfo, error) {
		return c.store.Put(ctx, e, level, c.ops.Counted(level, s.Sections))
	})
	end(ended(events.Event{Bytes: info.Bytes, Stored: info.Stored}, err))
	c.state.PinUsed()
	return info, err
}

// agentDone lets rank 0 start the next epoch: no rank holds captured bytes any
// more that it would not give back. err is why the epoch came to no level.
func (c *Checkpointer) agentDone(e storage.Epoch, err error) {
	if c.world.Rank() != 0 {
		return
	}
	es, _ := c.stats.epoch(e)
	_ = c.agent.do(c.ctx, func() { // closed: nothing follows
		c.agent.countVain(err)
		c.agent.step(cut.Done{Epoch: cut.Epoch(e), Failed: err != nil})
		c.agent.replan(es.Blocked)
	})
}

// countVain counts the epochs in a row that came to no level, at rank 0, and ends the job
// when there are too many.
func (a *agent) countVain(err error) {
	if a.vain++; err == nil {
		a.vain = 0
	}
	if limit := a.c.opt.MaxFailed; limit > 0 && a.vain >= limit && a.c.ctx.Err() == nil {
		a.leave(-1, cut.Message{Kind: cut.KindLost, Rank: a.c.world.Rank(),
			Stage: aborted(fmt.Errorf("%d checkpoints in a row came to no level, and max_failed is %d: %w", a.vain,
				limit, err))})
	}
}

// persistOuter copies the epoch to the levels beyond the one that has it. One that fails does not
// keep it from those beyond: redundancy cannot be had where too few nodes are
// left, and then the global level is all there is against the next death. Likewise for
// a final one that has no time for a level.
func (c *Checkpointer) persistOuter(e storage.Epoch, l *capture.Lease, p *persistence, before *persist.Turn,
	start time.Time, from int) error {
	var failed error
	for i, level := range c.levels {
		p.flush.Pass(max(i-1, 0))
		if i <= from {
			continue
		}
		behind := c.awaitFlush(e, before, i, p.final) // epochs reach each level in order
		ctx, cancel, err := c.timeFor(e, p, i, behind)
		var late *GraceError
		if errors.As(err, &late) {
			failed = errors.Join(failed, err)
			continue
		}
		if err != nil {
			return errors.Join(failed, err)
		}
		err = c.copyOut(ctx, e, level, l)
		yields := p.flush.Yielded()
		end, limited := ctx.Deadline() // of a final epoch: much the same on all ranks
		outOfTime := limited && time.Until(end) < persist.LateGrace && c.ctx.Err() == nil && !yields
		cancel()
		switch {
		case err != nil && c.ctx.Err() != nil:
			return errors.Join(failed, err)
		case err != nil:
			if outOfTime { // on some ranks only: all go on, and agree on the next level
				left, _ := c.end.Left()
				err = &GraceError{Epoch: e, Levels: p.levels, Level: level, Left: left, Err: err}
			}
			if yields { // on some ranks sooner than on others: all go on likewise
				err = fmt.Errorf("%w: %w", persist.ErrYields, err)
			}
			failed = errors.Join(failed, err)
			continue
		}
		c.phase("copied")
		c.committed(e, level, p, start)
	}
	return failed
}

func (c *Checkpointer) committed(e storage.Epoch, level string, p *persistence, start time.Time) {
	p.levels = append(p.levels, level)
	took := time.Since(start)
	c.stats.durable(e, level, took)
	c.metrics.Committed(uint64(e), level, took)
	c.events.Emit(events.Event{Name: events.Commit, Epoch: uint64(e), Level: level, Dur: int64(took)})
	if c.world.Rank() == 0 {
		es, _ := c.stats.epoch(e)
		c.log.Info("holdfast: committed", "epoch", e, "level", level, "bytes", es.Bytes, "blocked",
			es.Blocked.Round(time.Microsecond),
			"durable", took.Round(time.Microsecond))
	}
	if c.world.Rank() == 0 {
		c.survived()
	}
	if !c.begunNoted.Swap(true) {
		if err := c.store.NoteBegun(c.ctx, e, level); err != nil {
			c.log.Warn("holdfast: note that the job has checkpoints", "error", err)
		}
	}
	if level == storage.LevelGlobal {
		c.noteFlushed(e)
	}
	removed, err := persist.Attend(c.ctx, c.ops, "prune after the commit", level, nil, c.store.Prune)
	if err != nil {
		c.log.Warn("holdfast: prune", "error", err)
	} else if len(removed) > 0 {
		c.log.Debug("holdfast: pruned", "epochs", fmt.Sprint(removed))
	}
}

// commit votes on an epoch at a level and, when every rank's shard is durable,
// writes the manifest and votes on that. Collective.
func (c *Checkpointer) commit(e storage.Epoch, level string, infos []storage.ShardInfo, own error) error {
	end := c.events.Span(events.Event{Name: events.Vote, Epoch: uint64(e), Level: level})
	blobs, err := c.allgather(c.ctx, cut.Epoch(e), "put "+level, vote.EncodePut(infos, own))
	end(ended(events.Event{What: "put"}, err))
	if err != nil {
		return errors.Join(own, err)
	}
	c.phase("voted")
	infos, err = vote.DecodePuts("write epoch "+fmt.Sprint(e)+" to level "+level, blobs, own)
	if err != nil {
		discard := func(ctx context.Context) error { return c.store.Discard(ctx, e, level) }
		if derr := c.ops.Attend(c.ctx, "discard", level, discard); derr != nil && !errors.Is(derr, context.Canceled) {
			c.log.Warn("holdfast: discard", "epoch", e, "level", level, "error", derr)
		}
		return err
	}
	if level == c.levels[0] {
		c.stats.remember(infos)
	}
	mine := c.writeManifest(e, level, infos)
	end = c.events.Span(events.Event{Name: events.Vote, Epoch: uint64(e), Level: level})
	blobs, err = c.allgather(c.ctx, cut.Epoch(e), "commit "+level, mine.Encode())
	end(ended(events.Event{What: "commit"}, err))
	if err != nil {
		return errors.Join(mine.Err, err)
	}
	all, err := vote.DecodeCommits("commit epoch "+fmt.Sprint(e)+" at level "+level, blobs, mine.Err)
	if err != nil {
		return errors.Join(err, c.store.Withdraw(e, level))
	}
	return errors.Join(c.store.Committed(e, level), c.store.Agree(level, all))
}

// writeManifest commits an epoch into this rank's directory of a level, and says
// what lies there. A local directory belongs to its node, so every rank commits
// there; the global one is shared, and rank 0 writes for all.
func (c *Checkpointer) writeManifest(e storage.Epoch, level string, infos []storage.ShardInfo) (v vote.Commit) {
	if level == storage.LevelGlobal && c.world.Rank() != 0 {
		return vote.Commit{Shared: true}
	}
	if v.Err = c.writeAttended(e, level, infos); v.Err != nil {
		return v
	}
	have, err := c.store.Present(c.ctx, level)
	if err != nil { // then only this epoch counts, and nothing older is removed
		c.log.Warn("holdfast: epochs at a level", "level", level, "error", err)
		have = []storage.Epoch{e}
	}
	v.Have = have
	return v
}

// writeAttended writes the manifest, or gives that up. Then this rank votes no, so a
// manifest that comes into being all the same is taken back, by whichever is last.
func (c *Checkpointer) writeAttended(e storage.Epoch, level string, infos []storage.ShardInfo) error {
	var other atomic.Bool
	err := c.ops.Attend(c.ctx, "commit", level, func(ctx context.Context) error {
		err := c.store.Commit(ctx, e, level, infos)
		if other.Swap(true) && err == nil {
			err = c.store.Withdraw(e, level)
		}
		return err
	})
	var hung *HungError
	if errors.As(err, &hung) && other.Swap(true) {
		err = errors.Join(err, c.store.Withdraw(e, level))
	}
	return err
}
