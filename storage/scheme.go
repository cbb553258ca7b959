package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/storage/internal/catalog"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// scheme is the way in which this rank's data of an epoch gets to a level, and back. Only openLevel chooses a level's
// scheme.
type scheme interface {
	// flush makes the rank's part of an epoch durable there; see Store.Flush.
	flush(ctx context.Context, e Epoch, from string, secs []Section) (ShardInfo, error)
	// rebuild makes the rank's part of a committed epoch whole again; see Store.Rebuild.
	rebuild(ctx context.Context, m *format.Manifest) error
	// sources lists where a rank's shard is to be had.
	sources(e Epoch, rank int) []shard.Source
	// reachable returns, after a cheap look, an error if a rank's shard of a committed epoch cannot be had.
	reachable(ctx context.Context, m *format.Manifest, rank int) error
	// outside lists the files that this rank writes to other ranks' directories.
	outside() []remoteFile
}

// remoteFile is a file of this rank in the directory of another one.
type remoteFile struct {
	at   int // rank
	name string
}

// ownFiles is the scheme of levels where each rank's shard lies in the rank's own directory, or in that of all.
type ownFiles struct {
	s *Store
	l *levelState
}

func (o *ownFiles) flush(ctx context.Context, e Epoch, from string, secs []Section) (info ShardInfo, err error) {
	infos, err := o.s.copyRanks(ctx, e, from, []int{o.s.opt.Rank}, &copying{to: o.l, dir: o.l, secs: secs})
	if err != nil {
		return info, err
	}
	return infos[0], nil
}

func (o *ownFiles) rebuild(ctx context.Context, m *format.Manifest) error {
	if o.l.Traits().Shared {
		return fmt.Errorf("level %s has no redundancy to rebuild", o.l.Name())
	}
	return o.s.rebuildShard(ctx, m, o.l, o.l)
}

func (o *ownFiles) sources(e Epoch, rank int) []shard.Source {
	out := []shard.Source{&ownSource{o.s, o.l}}
	another := rank != o.s.opt.Rank && rank < o.s.opt.Size
	if t := o.l.Traits(); another && !t.Shared && !t.WrittenByOthers && o.s.opt.Transport != nil {
		out = append(out, &peerSource{o.s, o.l, rank})
	}
	for _, r := range o.s.catalog.Holders(o.l.Level, e, func(h *catalog.Holding) bool { return h.HasShard(rank) }) {
		out = append(out, &peerSource{o.s, o.l, r})
	}
	return out
}

func (o *ownFiles) reachable(ctx context.Context, m *format.Manifest, own int) error {
	id := m.ID()
	err := level.Probe(o.l, m, own)
	at := func(h *catalog.Holding) bool { return h.Id == id && h.HasShard(own) }
	if err == nil || len(o.s.catalog.Holders(o.l.Level, m.Epoch, at)) > 0 {
		return nil
	}
	unvoted := func(h *catalog.Holding) bool { return h.Id == [16]byte{} && h.HasShard(own) }
	for _, r := range o.s.catalog.Holders(o.l.Level, m.Epoch, unvoted) {
		d, f := o.s.catalog.PeerDir(ctx, r, o.l.Level)
		if errors.Join(level.Probe(d, m, own), f.Close()) == nil {
			return nil
		}
	}
	return err
}

func (o *ownFiles) outside() []remoteFile { return nil }

// partnerCopies is the scheme of levels where a rank's shard lies in the directories of ranks on other nodes.
type partnerCopies struct{ ownFiles }

func (p *partnerCopies) partners() ([]int, error) {
	return redundancy.Partners(p.s.opt.Nodes, p.s.opt.Rank, p.l.cfg.Copies)
}

// flush copies the shard to the partners, one after the other.
func (p *partnerCopies) flush(ctx context.Context, e Epoch, from string, secs []Section) (info ShardInfo, err error) {
	s := p.s
	sh, err := s.fetch(ctx, e, s.opt.Rank, s.sources(e, s.opt.Rank, from))
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	ranks, err := p.partners()
	if err != nil {
		return info, err
	}
	var holders []string
	for i, r := range ranks {
		one, err := p.copyTo(ctx, r, &copying{to: p.l, shards: []*Shard{sh}, secs: secs})
		if err != nil {
			return info, fmt.Errorf("copy to rank %d on node %s: %w", r, s.opt.Nodes[r], err)
		}
		if i > 0 && one.Index != info.Index {
			return info, fmt.Errorf("copies at ranks %d and %d differ", ranks[0], r)
		}
		info = one
		holders = append(holders, s.opt.Nodes[r])
	}
	info.Holders = holders
	return info, nil
}

func (p *partnerCopies) copyTo(ctx context.Context, rank int, c *copying) (info ShardInfo, err error) {
	d, f := p.s.catalog.PeerDir(ctx, rank, p.l.Level)
	defer func() { err = errors.Join(err, f.Close()) }()
	c.dir = d
	infos, err := p.s.copyShards(ctx, c)
	if err != nil {
		return info, err
	}
	return infos[0], nil
}

// rebuild sends the copies to the present partners.
func (p *partnerCopies) rebuild(ctx context.Context, m *format.Manifest) error {
	ranks, err := p.partners()
	if err != nil {
		return err
	}
	for _, r := range ranks {
		d, f := p.s.catalog.PeerDir(ctx, r, p.l.Level)
		if err := errors.Join(p.s.rebuildShard(ctx, m, d, p.l), f.Close()); err != nil {
			return fmt.Errorf("copy to rank %d on node %s: %w", r, p.s.opt.Nodes[r], err)
		}
	}
	return p.l.Commit(m, nil) // the own directory takes part in the epoch as well
}

func (p *partnerCopies) outside() (out []remoteFile) {
	ranks, _ := p.partners() // none: then nothing was written
	for _, r := range ranks {
		out = append(out, remoteFile{r, format.ShardName(p.s.opt.Rank)})
	}
	return out
}
