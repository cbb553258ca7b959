package coordinated

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/storage"
)

// persistence is what the main thread may wait for.
type persistence struct {
	put    chan struct{} // closed when the captured bytes are no longer needed
	all    chan struct{} // closed when the epoch is at all levels, or will not be
	final  bool          // the program is to stop after it
	behind bool          // there was no time to wait for the epoch before
	levels []string      // at which it is committed, nearest first; read after all
	err    error         // read after all
}

// persist writes a captured epoch in the background: put, vote, commit at the
// first level, then copy outward level by level. A rank whose capture failed
// takes part in the votes with its error. A final epoch goes only as far out as
// there is time. Called by the main thread at the
// cut, in the same order of epochs on all ranks.
func (c *Checkpointer) persist(e storage.Epoch, s *captured, captureErr error, final bool) *persistence {
	p := &persistence{put: make(chan struct{}), all: make(chan struct{}), final: final}
	start := time.Now()
	before := c.flushed
	after := make(chan struct{})
	c.flushed = after
	c.writers.Go(func() {
		defer close(p.all)
		defer close(after)
		l := c.pool.lend(c.ctx, s)
		err := c.persistFirst(e, s, l, captureErr, p, start)
		if err == nil && final && len(c.levels) > 1 {
			c.mayStay(e)
			err = c.learnEnd(e)
		}
		if err == nil {
			p.behind = c.awaitFlush(before, final) // epochs reach the outer levels in order
			err = c.persistOuter(e, l, p, start)
		}
		err = errors.Join(err, l.giveBack())
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
	case len(at) == 0:
		c.log.Error("holdfast: checkpoint failed, older epochs stay", "epoch", e, "error", err)
	default:
		c.log.Error("holdfast: checkpoint failed at a level, it is at "+strings.Join(at, ", ")+" only", "epoch", e, "error", err)
	}
}

// persistFirst brings the epoch to the first level, and frees the captured
// bytes unless the further levels can have them from there.
func (c *Checkpointer) persistFirst(e storage.Epoch, s *captured, l *loan, err error, p *persistence, start time.Time) error {
	level := c.levels[0]
	var info storage.ShardInfo
	if err == nil {
		end := c.begin(events.Write, e, level, s.bytes)
		info, err = c.store.Put(c.ctx, e, level, s.sections)
		end(ended(events.Event{Bytes: info.Bytes, Stored: info.Stored}, err))
	}
	c.pool.pinUsed()
	if err != nil || len(c.levels) == 1 || !s.inMemory() {
		err = errors.Join(err, l.giveBack())
	} else {
		l.done()
	}
	close(p.put)
	c.phase("put")
	err = c.commit(e, level, []storage.ShardInfo{info}, err)
	c.phase("committed")
	c.agentDone(e, err != nil)
	if err != nil {
		return err
	}
	c.committed(e, level, p, start)
	return nil
}

// agentDone lets rank 0 start the next epoch: no rank holds captured bytes any
// more that it would not give back.
func (c *Checkpointer) agentDone(e storage.Epoch, failed bool) {
	if c.world.Rank() != 0 {
		return
	}
	es, _ := c.stats.epoch(e)
	_ = c.agent.do(c.ctx, func() { // closed: nothing follows
		c.agent.step(cut.Done{Epoch: cut.Epoch(e), Failed: failed})
		c.agent.replan(es.Blocked)
	})
}

// persistOuter copies the epoch to the further levels. One that fails does not
// keep it from those beyond: redundancy cannot be had where too few nodes are
// left, and then the global level is all there is against the next death.
func (c *Checkpointer) persistOuter(e storage.Epoch, l *loan, p *persistence, start time.Time) error {
	var failed error
	for i, level := range c.levels {
		if i == 0 {
			continue
		}
		ctx, cancel, err := c.timeFor(e, p, i)
		if err != nil {
			return errors.Join(failed, err)
		}
		err = c.copyOut(ctx, e, level, l)
		late := ctx.Err() != nil && c.ctx.Err() == nil
		cancel()
		switch {
		case err != nil && c.ctx.Err() != nil:
			return errors.Join(failed, err)
		case err != nil:
			if late { // on some ranks only: all go on, and agree on the next level
				left, _ := c.left()
				err = &GraceError{Epoch: e, Levels: p.levels, Level: level, Left: left, Err: err}
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
		c.log.Info("holdfast: committed", "epoch", e, "level", level, "bytes", es.Bytes, "blocked", es.Blocked.Round(time.Microsecond),
			"durable", took.Round(time.Microsecond))
	}
	if c.world.Rank() == 0 {
		c.survived()
	}
	if level == storage.LevelGlobal {
		c.stayedNot(e)
	}
	if removed, err := c.store.Prune(c.ctx); err != nil {
		c.log.Warn("holdfast: prune", "error", err)
	} else if len(removed) > 0 {
		c.log.Debug("holdfast: pruned", "epochs", fmt.Sprint(removed))
	}
}

// commit votes on an epoch at a level and, when every rank's shard is durable,
// writes the manifest and votes on that. Collective.
func (c *Checkpointer) commit(e storage.Epoch, level string, infos []storage.ShardInfo, own error) error {
	end := c.events.Span(events.Event{Name: events.Vote, Epoch: uint64(e), Level: level})
	blobs, err := c.allgather(c.ctx, cut.Epoch(e), "put "+level, encodeVote(infos, own))
	end(ended(events.Event{What: "put"}, err))
	if err != nil {
		return errors.Join(own, err)
	}
	c.phase("voted")
	infos, err = decodeVotes("write epoch "+fmt.Sprint(e)+" to level "+level, blobs, own)
	if err != nil {
		if derr := c.store.Discard(c.ctx, e, level); derr != nil && !errors.Is(derr, context.Canceled) {
			c.log.Warn("holdfast: discard", "epoch", e, "level", level, "error", derr)
		}
		return err
	}
	if level == c.levels[0] {
		c.stats.remember(infos)
	}
	// A local directory belongs to its node, so every rank commits there; the
	// global one is shared, and rank 0 writes for all.
	var cerr error
	if level != storage.LevelGlobal || c.world.Rank() == 0 {
		cerr = c.store.Commit(c.ctx, e, level, infos)
	}
	end = c.events.Span(events.Event{Name: events.Vote, Epoch: uint64(e), Level: level})
	blobs, err = c.allgather(c.ctx, cut.Epoch(e), "commit "+level, encodeError(cerr))
	end(ended(events.Event{What: "commit"}, err))
	if err != nil {
		return errors.Join(cerr, err)
	}
	if err := decodeErrors("commit epoch "+fmt.Sprint(e)+" at level "+level, blobs, cerr); err != nil {
		return err
	}
	return c.store.Committed(e, level)
}

// A vote is a byte, 0 for shard infos, each with its length in 32 bits before
// it, and 1 for the text of an error.
func encodeVote(infos []storage.ShardInfo, err error) []byte {
	out := []byte{0}
	for i := range infos {
		if err != nil {
			break
		}
		var b []byte
		b, err = infos[i].MarshalBinary()
		out = binary.LittleEndian.AppendUint32(out, uint32(len(b)))
		out = append(out, b...)
	}
	if err != nil {
		return append([]byte{1}, err.Error()...)
	}
	return out
}

// decodeVotes returns the infos of all ranks, or why there are none.
func decodeVotes(op string, blobs []cut.Blob, own error) ([]storage.ShardInfo, error) {
	var infos []storage.ShardInfo
	texts := make([]string, len(blobs))
	for i, b := range blobs {
		if len(b.Data) == 0 || b.Data[0] != 0 {
			texts[i] = "no vote"
			if len(b.Data) > 1 {
				texts[i] = string(b.Data[1:])
			}
			continue
		}
		for d := b.Data[1:]; len(d) > 0; {
			n := 0
			if len(d) >= 4 {
				n = int(binary.LittleEndian.Uint32(d))
			}
			var info storage.ShardInfo
			if len(d) < 4 || n > len(d)-4 || info.UnmarshalBinary(d[4:4+n]) != nil {
				texts[i] = "malformed vote"
				break
			}
			infos = append(infos, info)
			d = d[4+n:]
		}
	}
	if err := ranksError(op, texts, own); err != nil {
		return nil, err
	}
	if len(infos) != len(blobs) {
		return nil, fmt.Errorf("%s: %d shards from %d ranks", op, len(infos), len(blobs))
	}
	return infos, nil
}

func encodeError(err error) []byte {
	if err == nil {
		return nil
	}
	return []byte(err.Error())
}

func decodeErrors(op string, blobs []cut.Blob, own error) error {
	texts := make([]string, len(blobs))
	for i, b := range blobs {
		texts[i] = string(b.Data)
	}
	return ranksError(op, texts, own)
}
