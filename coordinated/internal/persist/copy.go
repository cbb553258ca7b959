package persist

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/storage"
)

// copyOut copies an epoch from the first level to another and commits it there, from captured memory unless that has
// been claimed for the next epoch. l is nil, on all ranks, without captured memory. ctx bounds the copying on this
// rank. Collective.
func (p *Persister) copyOut(ctx context.Context, e storage.Epoch, level string, l *capture.Lease) error {
	traits := storage.TraitsOf(level)
	if traits.Shared {
		infos, err := p.copyNode(ctx, e, level, l)
		return p.commit(e, level, infos, err)
	}
	if traits.Rows {
		defer p.serveShard(ctx, e, l)() // until all ranks have voted, and so have read
	}
	end := p.copying(e, level, p.Rank)
	info, err := p.copyShard(ctx, e, level, l)
	end(info.Bytes, info.Stored, err)
	return p.commit(e, level, []storage.ShardInfo{info}, err)
}

// serveShard serves this rank's shard to ranks that compute parity from memory, until end is called or the memory is
// wanted back.
func (p *Persister) serveShard(ctx context.Context, e storage.Epoch, l *capture.Lease) (end func()) {
	secs := l.Hold()
	if secs == nil {
		return func() {}
	}
	release, err := p.Store.ServeFromMemory(ctx, e, p.Levels[0], secs)
	if err != nil {
		p.Log.Debug("holdfast: parity is computed from disk, not from memory", "epoch", e, "why", err)
		l.Done()
		return func() {}
	}
	once := sync.OnceFunc(func() { release(); l.Done() })
	stop := l.OnRecall(once)
	return func() { stop(); once() }
}

func (p *Persister) copyShard(ctx context.Context, e storage.Epoch, level string,
	l *capture.Lease) (storage.ShardInfo, error) {
	flush := func(l *capture.Lease, secs []storage.Section) (storage.ShardInfo, error) {
		return runWatched(ctx, p.Operations, "copy", level, l, func(ctx context.Context) (storage.ShardInfo, error) {
			ctx, cancel := l.Within(ctx)
			defer cancel()
			return p.Store.Flush(ctx, e, p.Levels[0], level, p.Operations.counted(level, secs))
		})
	}
	if !storage.TraitsOf(level).Rows { // which are computed from the shards of others
		if secs := l.Hold(); secs != nil {
			info, err := flush(l, secs)
			l.Done()
			if err == nil || !l.Recalled() {
				return info, err
			}
		}
	}
	return flush(nil, nil)
}

// copyNode copies the shards of a node to a shared level, into few large files. The first rank of the node makes the
// files, and the others write to their places in them from captured memory. If any rank has none, the first rank copies
// for all from the first level.
func (p *Persister) copyNode(ctx context.Context, e storage.Epoch, level string,
	l *capture.Lease) ([]storage.ShardInfo, error) {
	if l != nil {
		infos, done, err := p.copyTogether(ctx, e, level, l)
		if done || err != nil {
			return infos, err
		}
	}
	ranks := p.Node
	if ranks[0] != p.Rank {
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	end := p.copying(e, level, ranks...)
	infos, err := runWatched(ctx, p.Operations, "copy", level, nil, func(
		ctx context.Context) ([]storage.ShardInfo, error) {
		return p.Store.FlushNode(ctx, e, p.Levels[0], level, ranks)
	})
	var bytes, stored int64
	for i := range infos {
		bytes, stored = bytes+infos[i].Bytes, stored+infos[i].Stored
	}
	end(bytes, stored, err)
	return infos, err
}

// copyTogether is copyNode from captured memory. done reports that all ranks have written their parts; the error is
// then that of sealing them, otherwise one of the control plane. Collective.
func (p *Persister) copyTogether(ctx context.Context, e storage.Epoch, level string,
	l *capture.Lease) (infos []storage.ShardInfo, done bool, err error) {
	defer func() { err = errors.Join(err, l.End()) }()
	part := p.newPart(ctx, e, level, l)
	var size []byte // empty from a rank that cannot take part
	var can []byte
	if part != nil {
		defer func() { err = errors.Join(err, part.Close()) }()
		size, can = part.Size(), []byte{1}
	}
	blobs, err := p.Allgather(e, "can "+level, can)
	if err != nil {
		return nil, false, err
	}
	pack := storage.NodePack{Epoch: e, From: p.Levels[0], To: level, Ranks: p.Node}
	if slices.ContainsFunc(blobs, func(b cut.Blob) bool { return len(b.Data) == 0 }) {
		return nil, false, nil
	}
	blobs, err = p.Meet(cut.Meeting{Epoch: cut.Epoch(e), Stage: "sizes " + level, Data: size, Node: true})
	if err != nil {
		return nil, false, err
	}
	for i := range blobs {
		pack.Sizes = append(pack.Sizes, blobs[i].Data)
	}
	werr := p.writePart(ctx, part, pack, l)
	err = l.End()
	p.Phase("part")
	blobs, gerr := p.Allgather(e, "parts "+level, outcome.Encode(werr))
	if err := errors.Join(err, gerr); err != nil {
		return nil, false, err
	}
	flusher := pack.Ranks[0] == p.Rank
	if werr := outcome.Decode("write packs", blobs, werr); werr != nil {
		if p.Rank == 0 {
			p.Log.Debug("holdfast: copying from the first level, not from memory", "epoch", e, "why", werr)
		}
		if flusher {
			err = p.Operations.Run(ctx, "discard", level, func(context.Context) error {
				return p.Store.DropPacks(pack)
			})
		}
		return nil, false, err
	}
	if flusher {
		infos, err = runWatched(p.ctx, p.Operations, "sync", level, nil, func(
			ctx context.Context) ([]storage.ShardInfo, error) {
			return part.Seal(ctx, pack)
		})
	}
	return infos, true, err
}

func (p *Persister) writePart(ctx context.Context, part *storage.Part, n storage.NodePack, l *capture.Lease) error {
	if l.Hold() == nil {
		return capture.ErrRecalled
	}
	end := p.copying(n.Epoch, n.To, p.Rank)
	info, err := runWatched(ctx, p.Operations, "copy", n.To, l, func(ctx context.Context) (storage.ShardInfo, error) {
		ctx, cancel := l.Within(ctx)
		defer cancel()
		return part.Write(ctx, n)
	})
	end(info.Bytes, info.Stored, err)
	return err
}

// newPart prepares this rank's part of its node's packs, or returns nil if it has none.
func (p *Persister) newPart(ctx context.Context, e storage.Epoch, level string, l *capture.Lease) *storage.Part {
	secs := l.Hold()
	if secs == nil {
		return nil
	}
	defer l.Done()
	part, err := runWatched(ctx, p.Operations, "prepare a copy", level, l, func(
		ctx context.Context) (*storage.Part, error) {
		ctx, cancel := l.Within(ctx)
		defer cancel()
		return p.Store.NewPart(ctx, e, p.Levels[0], level,
			p.Operations.counted(level, secs))
	})
	if err != nil {
		// If it matters, the first rank of the node meets it as well and reports it.
		p.Log.Debug("holdfast: this rank cannot copy from memory", "epoch", e, "why", err)
		return nil
	}
	if p.Node[0] == p.Rank && len(p.Node) > 1 {
		if err := part.Lead(); err != nil {
			p.Log.Debug("holdfast: each rank of the node opens the pack by itself", "epoch", e, "why", err)
		}
	}
	return part
}
