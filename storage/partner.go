package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// flushPartner copies the shard to the partners, one after the other.
func (s *Store) flushPartner(ctx context.Context, sh *Shard, to *levelState, secs []Section) (info ShardInfo,
	err error) {
	ranks, err := redundancy.Partners(s.opt.Nodes, s.opt.Rank, to.cfg.Copies)
	if err != nil {
		return info, err
	}
	spec := s.spec(sh.epoch, sh.rank, secs)
	s.prepareSpec(to, spec)
	var holders []string
	for i, r := range ranks {
		one, idx, err := s.copyTo(ctx, sh, to, r, spec)
		if err != nil {
			return info, fmt.Errorf("copy to rank %d on node %s: %w", r, s.opt.Nodes[r], err)
		}
		if i > 0 && one.Index != info.Index {
			return info, fmt.Errorf("copies at ranks %d and %d differ", ranks[0], r)
		}
		info = one
		holders = append(holders, s.opt.Nodes[r])
		to.remember(sh.epoch, idx)
	}
	info.Holders = holders
	return info, nil
}

// copyTo writes the shard into the directory of another rank, unless it lies
// there complete already.
func (s *Store) copyTo(ctx context.Context, sh *Shard, to *levelState, rank int, spec *shard.Spec) (info ShardInfo,
	idx *format.Index, err error) {
	d, f := s.peerDir(ctx, rank, to.Name)
	defer func() { err = errors.Join(err, f.Close()) }()
	if info, idx, ok, err := s.flushed(sh, d); ok || err != nil {
		return info, idx, err
	}
	if err := d.EnsureEpoch(sh.epoch); err != nil {
		return info, nil, d.Unusable(err)
	}
	if err := d.CheckSpace(spec); err != nil {
		return info, nil, err
	}
	done, err := s.turn(ctx)
	if err != nil {
		return info, nil, err
	}
	defer done()
	return s.writeOut(ctx, d, spec, s.throttle(to))
}
