package persist

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/storage"
)

// commit votes on an epoch at a level and, when every rank's shard is durable,
// writes the manifest and votes on that. Collective.
func (p *Persister) commit(e storage.Epoch, level string, infos []storage.ShardInfo, own error) error {
	end := p.Begin(Step{Name: VotePut, Epoch: e, Level: level})
	put := cut.Meeting{Epoch: cut.Epoch(e), Stage: "put " + level, Data: vote.EncodePut(infos, own)}
	put.Brief, put.Whole = vote.BriefPuts, func(rank int) bool { return p.writerOf(level, rank) == rank }
	blobs, err := p.Meet(put)
	end(0, 0, err)
	if err != nil {
		return errors.Join(own, err)
	}
	p.Phase("voted")
	mine, ranks := infos, len(blobs)
	infos, err = vote.DecodePuts("write epoch "+fmt.Sprint(e)+" to level "+level, blobs, own)
	if errors.Is(err, ErrPutOff) { // this rank has written nothing
		return err
	}
	if err != nil {
		discard := func(ctx context.Context) error { return p.Store.Discard(ctx, e, level) }
		if derr := p.Operations.Run(p.ctx, "discard", level, discard); derr != nil &&
			!errors.Is(derr, context.Canceled) {
			p.Log.Warn("holdfast: discard", "epoch", e, "level", level, "error", derr)
		}
		return err
	}
	if level == p.Levels[0] {
		p.remember(append(mine, infos...), ranks)
	}
	written := p.writeManifest(e, level, infos)
	end = p.Begin(Step{Name: VoteCommit, Epoch: e, Level: level})
	blobs, err = p.Meet(cut.Meeting{Epoch: cut.Epoch(e), Stage: "commit " + level, Data: written.Encode(),
		Brief: vote.BriefCommits, Whole: func(rank int) bool { return rank == 0 }})
	end(0, 0, err)
	if err != nil {
		return errors.Join(written.Err, err)
	}
	all, err := vote.DecodeCommits("commit epoch "+fmt.Sprint(e)+" at level "+level, blobs, written.Err)
	if err != nil {
		return errors.Join(err, p.Store.Withdraw(e, level))
	}
	return errors.Join(p.Store.Committed(e, level), p.Store.Agree(level, all))
}

// writerOf returns the rank that writes the manifests of a rank's directory of a level: itself where that is no
// other's.
func (p *Persister) writerOf(level string, rank int) int {
	if storage.TraitsOf(level).Shared {
		return 0
	}
	if w := p.Writers[level]; w != nil {
		return w[rank]
	}
	return rank
}

// sharing lists the other ranks for which this one writes the manifests of a level.
func (p *Persister) sharing(level string) (out []int) {
	for r, w := range p.Writers[level] {
		if w == p.Rank && r != p.Rank {
			out = append(out, r)
		}
	}
	return out
}

// writeManifest commits an epoch into this rank's directory of a level, and returns the epochs there. One rank does so
// for all ranks that share the directory.
func (p *Persister) writeManifest(e storage.Epoch, level string, infos []storage.ShardInfo) (v vote.Commit) {
	if p.writerOf(level, p.Rank) != p.Rank {
		return vote.Commit{ByOther: true}
	}
	if v.Err = p.writeWatched(e, level, infos); v.Err != nil {
		return v
	}
	have, err := p.Store.Present(p.ctx, level)
	if err != nil { // then only this epoch counts, and nothing older is removed
		p.Log.Warn("holdfast: cannot list the epochs at a level; older ones are not removed", "level", level, "error",
			err)
		have = []storage.Epoch{e}
	}
	v.Have = have
	return v
}

// writeWatched writes the manifest, or gives that up. Then this rank votes no, so a
// manifest that comes into being all the same is taken back, by whichever is last.
func (p *Persister) writeWatched(e storage.Epoch, level string, infos []storage.ShardInfo) error {
	var other atomic.Bool
	err := p.Operations.Run(p.ctx, "commit", level, func(ctx context.Context) error {
		err := p.Store.Commit(ctx, e, level, infos, p.sharing(level)...)
		if other.Swap(true) && err == nil {
			err = p.Store.Withdraw(e, level)
		}
		return err
	})
	if errors.As(err, new(*HungError)) && other.Swap(true) {
		err = errors.Join(err, p.Store.Withdraw(e, level))
	}
	return err
}
