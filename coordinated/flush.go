package coordinated

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/storage"
)

// copyOut copies an epoch from the first level to another and commits it there,
// from captured memory as far as that has not been claimed for the next epoch.
// l is nil, on all ranks, when there is none. ctx bounds the copying on this
// rank. Collective.
func (c *Checkpointer) copyOut(ctx context.Context, e storage.Epoch, level string, l *capture.Lease) error {
	if level == storage.LevelGlobal {
		infos, err := c.copyNode(ctx, e, l)
		return c.commit(e, level, infos, err)
	}
	if level == storage.LevelParity {
		defer c.lendShard(ctx, e, l)() // until all ranks have voted, and so have read
	}
	end := c.copySpan(e, level, c.world.Rank())
	info, err := c.copyShard(ctx, e, level, l)
	end(ended(events.Event{Bytes: info.Bytes, Stored: info.Stored}, err))
	return c.commit(e, level, []storage.ShardInfo{info}, err)
}

// lendShard serves this rank's shard to those who compute parity from memory,
// until end is called or the memory is wanted back.
func (c *Checkpointer) lendShard(ctx context.Context, e storage.Epoch, l *capture.Lease) (end func()) {
	if l == nil {
		return func() {}
	}
	secs := l.Hold()
	if secs == nil {
		return func() {}
	}
	release, err := c.store.Lend(ctx, e, c.levels[0], secs)
	if err != nil {
		c.log.Debug("holdfast: parity is computed from the disk", "epoch", e, "why", err)
		l.Done()
		return func() {}
	}
	once := sync.OnceFunc(func() { release(); l.Done() })
	stop := l.OnRecall(once)
	return func() { stop(); once() }
}

// copyShard copies this rank's shard.
func (c *Checkpointer) copyShard(ctx context.Context, e storage.Epoch, level string,
	l *capture.Lease) (storage.ShardInfo, error) {
	if l != nil && level != storage.LevelParity { // which is computed from the shards of others
		if secs := l.Hold(); secs != nil {
			bound, cancel := l.Within(ctx)
			from := func(ctx context.Context) (storage.ShardInfo, error) {
				return c.store.Flush(ctx, e, c.levels[0], level, c.ops.Counted(level, secs))
			}
			info, err := persist.Attend(bound, c.ops, "copy", level, l, from)
			cancel()
			l.Done()
			if err == nil || !l.Recalled() {
				return info, err
			}
		}
	}
	return persist.Attend(ctx, c.ops, "copy", level, nil, func(ctx context.Context) (storage.ShardInfo, error) {
		return c.store.Flush(ctx, e, c.levels[0], level, nil)
	})
}

// copyNode copies the shards of a node to the global level, into few large files.
// The first rank of the node is its flusher: it makes the files, and the others
// write to their places in them from captured memory. When any rank has none,
// the flusher copies for all of them from the first level.
func (c *Checkpointer) copyNode(ctx context.Context, e storage.Epoch, l *capture.Lease) ([]storage.ShardInfo, error) {
	if l != nil {
		infos, done, err := c.copyTogether(ctx, e, l)
		if done || err != nil {
			return infos, err
		}
	}
	ranks := c.topo.nodeOf(c.world.Rank())
	if ranks[0] != c.world.Rank() {
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	end := c.copySpan(e, storage.LevelGlobal, ranks...)
	infos, err := persist.Attend(ctx, c.ops, "copy", storage.LevelGlobal, nil, func(
		ctx context.Context) ([]storage.ShardInfo, error) {
		return c.store.FlushNode(ctx, e, c.levels[0], storage.LevelGlobal, ranks)
	})
	bytes, stored := sum(infos)
	end(ended(events.Event{Bytes: bytes, Stored: stored}, err))
	return infos, err
}

// copyTogether is copyNode from captured memory. It is done when all ranks have
// written their parts, and then says what came of sealing them; an error
// otherwise is one of the control plane. Collective.
func (c *Checkpointer) copyTogether(ctx context.Context, e storage.Epoch, l *capture.Lease) (infos []storage.ShardInfo,
	done bool, err error) {
	defer func() { err = errors.Join(err, l.End()) }()
	part := c.newPart(ctx, e, l)
	blobs, err := c.allgather(c.ctx, cut.Epoch(e), "sizes "+storage.LevelGlobal, encodeSize(part))
	if err != nil {
		return nil, false, err
	}
	pack := storage.NodePack{Epoch: e, From: c.levels[0], To: storage.LevelGlobal, Ranks: c.topo.nodeOf(c.world.Rank())}
	if !decodeSizes(blobs, &pack) {
		return nil, false, nil
	}
	werr := c.writePart(ctx, part, pack, l)
	err = l.End()
	c.phase("part")
	blobs, gerr := c.allgather(c.ctx, cut.Epoch(e), "parts "+storage.LevelGlobal, vote.EncodeError(werr))
	if err := errors.Join(err, gerr); err != nil {
		return nil, false, err
	}
	flusher := pack.Ranks[0] == c.world.Rank()
	if werr := vote.DecodeErrors("write packs", blobs, werr); werr != nil {
		if c.world.Rank() == 0 {
			c.log.Debug("holdfast: copying from the first level instead", "epoch", e, "why", werr)
		}
		if flusher {
			err = c.ops.Attend(ctx, "discard", storage.LevelGlobal, func(context.Context) error {
				return c.store.DropPacks(pack)
			})
		}
		return nil, false, err
	}
	if flusher {
		infos, err = persist.Attend(c.ctx, c.ops, "sync", storage.LevelGlobal, nil, func(
			ctx context.Context) ([]storage.ShardInfo, error) {
			return c.store.SealPacks(ctx, pack)
		})
	}
	return infos, true, err
}

// writePart writes this rank's part of the pack.
func (c *Checkpointer) writePart(ctx context.Context, p *storage.Part, n storage.NodePack, l *capture.Lease) error {
	if l.Hold() == nil {
		return capture.ErrRecalled
	}
	ctx, cancel := l.Within(ctx)
	defer cancel()
	end := c.copySpan(n.Epoch, n.To, c.world.Rank())
	_, err := persist.Attend(ctx, c.ops, "copy", n.To, l, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.Write(ctx, n)
	})
	end(ended(events.Event{Bytes: p.Size().Bytes, Stored: p.Stored()}, err))
	return err
}

// newPart prepares this rank's part of its node's packs; nil if it has none to
// give.
func (c *Checkpointer) newPart(ctx context.Context, e storage.Epoch, l *capture.Lease) *storage.Part {
	secs := l.Hold()
	if secs == nil {
		return nil
	}
	defer l.Done()
	ctx, cancel := l.Within(ctx)
	defer cancel()
	p, err := persist.Attend(ctx, c.ops, "prepare a copy", storage.LevelGlobal, l, func(
		ctx context.Context) (*storage.Part, error) {
		return c.store.NewPart(ctx, e, c.levels[0], storage.LevelGlobal, c.ops.Counted(storage.LevelGlobal, secs))
	})
	if err != nil {
		// If it matters, the flusher will meet it as well and say so.
		c.log.Debug("holdfast: no copy from memory", "epoch", e, "why", err)
		return nil
	}
	return p
}

// encodeSize is 16 bytes, or none for a rank that cannot take part.
func encodeSize(p *storage.Part) []byte {
	if p == nil {
		return nil
	}
	z := p.Size()
	b := binary.LittleEndian.AppendUint64(nil, uint64(z.Bytes))
	return binary.LittleEndian.AppendUint64(b, uint64(z.Room))
}

// decodeSizes fills in the sizes of the pack's ranks and reports whether all
// ranks of the job take part.
func decodeSizes(blobs []cut.Blob, n *storage.NodePack) bool {
	sizes := make([]storage.PartSize, len(blobs))
	for i, b := range blobs {
		if len(b.Data) != 16 {
			return false
		}
		sizes[i] = storage.PartSize{Bytes: int64(binary.LittleEndian.Uint64(b.Data)),
			Room: int64(binary.LittleEndian.Uint64(b.Data[8:]))}
	}
	for _, r := range n.Ranks {
		n.Sizes = append(n.Sizes, sizes[r])
	}
	return true
}

// nextFlush makes the turn that follows the newest one, and returns both. Called by the
// main thread.
func (c *Checkpointer) nextFlush() (before, t *persist.Turn) {
	before, c.flushed = c.flushed, persist.NewTurn(c.ctx, len(c.levels))
	return before, c.flushed
}
