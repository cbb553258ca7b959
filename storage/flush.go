package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/peer"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Flush copies this rank's shard of an epoch that is committed at from to the
// level to, verified while it is copied, at the rate that the level allows.
// When it returns nil the copy is durable at to and not yet committed there. A
// chunk that is bad at from comes from another level. What an earlier Flush
// completed is not copied again.
//
// A caller who still has the sections that were put at from gives them: they are
// taken from memory and only compared with what was committed, which spares
// reading them back. The level parity is computed from the shards all the same.
func (s *Store) Flush(ctx context.Context, e Epoch, from, to string, secs []Section) (ShardInfo, error) {
	leave, err := s.enter()
	if err != nil {
		return ShardInfo{}, err
	}
	defer leave()
	if _, err := s.at(from); err != nil {
		return ShardInfo{}, err
	}
	l, err := s.at(to)
	if err != nil {
		return ShardInfo{}, err
	}
	defer s.hold(e)()
	info, err := s.flush(ctx, e, from, l, secs)
	return info, s.fault("flush", e, to, err)
}

func (s *Store) flush(ctx context.Context, e Epoch, from string, to *levelState, secs []Section) (info ShardInfo,
	err error) {
	if to.Name == LevelParity {
		return s.flushParity(ctx, e, to)
	}
	rank := s.opt.Rank
	sh, err := s.fetch(ctx, e, rank, s.sources(e, rank, from))
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	if secs == nil {
		secs = sh.asSections(ctx)
	}
	if to.Name == LevelPartner {
		info, err = s.flushPartner(ctx, sh, to, secs)
	} else {
		info, err = s.flushDir(ctx, sh, to, secs)
	}
	if err == nil && info.Digest != sh.digest {
		err = errors.Join(fmt.Errorf("copy differs from its source: %w", ErrCorrupt), s.discard(ctx, e, to))
	}
	return info, err
}

// flushDir copies the shard into this rank's own directory of a level.
func (s *Store) flushDir(ctx context.Context, sh *Shard, to *levelState, secs []Section) (ShardInfo, error) {
	info, idx, ok, err := s.flushed(sh, &to.Dir)
	if err != nil {
		return info, err
	}
	if ok {
		to.remember(sh.epoch, idx)
		return info, nil
	}
	spec := s.spec(sh.epoch, sh.rank, secs)
	spec.Wanted = sh.shape
	return s.putShard(ctx, to, spec, s.throttle(to))
}

// asSections makes the shard's sections Sources for a copy in the background.
func (sh *Shard) asSections(ctx context.Context) []Section {
	sh.workers = sh.store.opt.FlushCores
	var secs []Section
	for _, sec := range sh.Sections() {
		secs = append(secs, Section{Name: sec.Name, Size: sec.Size, Source: &sectionReader{ctx, sh, sec}})
	}
	return secs
}

// flushed looks for a copy that is complete already: committed, or under its
// final name, which it got only after it was synced. idx is nil when it is
// committed.
func (s *Store) flushed(sh *Shard, to *level.Dir) (info ShardInfo, idx *format.Index, ok bool, err error) {
	infos, ok, err := committedInfos(to, []*Shard{sh})
	if err != nil {
		return info, nil, false, err
	}
	if ok {
		return infos[0], nil, true, nil
	}
	info, idx, err = to.Uncommitted(sh.epoch, sh.rank)
	if err != nil || info.Digest != sh.digest {
		return ShardInfo{}, nil, false, nil // absent, another, or damaged: write it anew
	}
	info.Node = s.opt.Node
	return info, idx, true, to.SyncEpoch(sh.epoch)
}

// sectionReader reads a section of a shard as a Source.
type sectionReader struct {
	ctx context.Context
	sh  *Shard
	sec SectionInfo
}

func (r *sectionReader) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > r.sec.Size {
		return 0, io.ErrUnexpectedEOF
	}
	if err := r.sh.ReadAt(r.ctx, r.sec.Name, p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

// KnownChunks makes sectionReader a chunkSource.
func (r *sectionReader) KnownChunks() []format.Chunk {
	return format.ChunksIn(r.sh.shape, r.sec.Name)
}

// Lend lets reads of this rank's shard of an epoch that is committed at a level
// be served from memory, as long as the caller has the sections that were put
// there: the ranks that compute parity need not wait for the disk. It is the level
// local, and the sections must not change before release returns, which waits
// for reads under way. What does not lie in memory as it lies on the disk is
// read from there.
func (s *Store) Lend(ctx context.Context, e Epoch, level string, secs []Section) (release func(), err error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	l, err := s.at(level)
	if err != nil {
		return nil, err
	}
	over, ok := l.FS.(*peer.MemFS)
	if !ok {
		return nil, &OptionError{Field: "Levels", Reason: "level " + level + " is not read by other ranks"}
	}
	c, err := shard.Open(ctx, &l.Dir, e, s.opt.Rank)
	if err != nil {
		return nil, s.fault("fetch", e, level, err)
	}
	m, err := peer.NewMemShard(c.Index, secs)
	if cerr := c.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, s.fault("fetch", e, level, err)
	}
	return over.Lend(filepath.Join(l.EpochPath(e), format.ShardName(s.opt.Rank)), m), nil
}

// Copied is how many bytes this rank has written for copies between levels since
// Open: how far a Flush is that runs alone.
func (s *Store) Copied() int64 { return s.copied.Load() }

// CopiedTo is Copied for the copies to one level; 0 for one that the store has not.
func (s *Store) CopiedTo(level string) int64 {
	l, err := s.at(level)
	if err != nil {
		return 0
	}
	return l.copied.Load()
}

// Hold keeps copying between levels from starting further writes until release
// is called: the program wants the memory and the cores for a capture. Put is
// not held back.
func (s *Store) Hold() (release func()) { return s.gate.Hold() }

func (s *Store) throttle(to *levelState) *shard.Throttle {
	return &shard.Throttle{Pace: to.pace, Gate: &s.gate, Copied: &s.copied, There: &to.copied}
}

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
