package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Shard is a rank's shard of a committed epoch, open for reading. Bytes come from the nearest level where they are
// intact. Its calls are local.
//
//	func Epoch() Epoch
//	func Level() string           // from which it is read first
//	func Sections() []SectionInfo // in the order in which they were put
//	func Rank() int
//	func Digest() [16]byte        // of what it says, as in its entry of the manifest
//	func Layout() *Layout         // what it has of global arrays; nil: none
//
//	// ReadAt fills dst with verified bytes of a section from off on. A chunk that is bad at one level comes
//	// from the next; the error matches ErrCorrupt when none has it. dst is undefined after an error.
//	func ReadAt(ctx context.Context, name string, dst []byte, off int64) error
//	// Verify reads sections, or with no name the whole shard, and throws them away.
//	func Verify(ctx context.Context, names ...string) error
//	// VerifyMemory checks every byte of a shard whose Level is SourceMemory, where it lies. The error names what
//	// is damaged. Cost: none, if MemoryShard.Verify was called.
//	func VerifyMemory() error
//	// View returns a section where it lies in memory, after VerifyMemory; nil if it has to be read.
//	func View(name string) []byte
//	// Damage lists the damage found so far that an outer level made good.
//	func Damage() []error
//	// Close closes the files. Further calls do nothing.
//	func Close() error
type Shard = fetch.Shard

// SectionInfo describes a section of a shard: its Name, and its Size in bytes.
type SectionInfo = fetch.SectionInfo

// Fetch opens this rank's shard of an epoch at the nearest level that has it. Only manifest and index are read now;
// ReadAt reads the rest. The error says for each level why it cannot be used; it matches ErrNotCommitted when the epoch
// exists at none. The caller closes the Shard. Until then Prune keeps the epoch, and Close of the Store waits.
func (s *Store) Fetch(ctx context.Context, e Epoch) (*Shard, error) {
	list := s.sources(e, s.opt.Rank, "")
	if m := s.opt.Memory; m.Epoch() == e && e != 0 {
		list = append([]shard.Source{&memorySource{s, m}}, list...)
	}
	return s.fetch(ctx, e, s.opt.Rank, list)
}

func (s *Store) fetch(ctx context.Context, e Epoch, rank int, from []shard.Source) (*Shard, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	release := s.catalog.Use(e)
	sh, err := fetch.Open(ctx, s.log, e, rank, from)
	if err != nil {
		release()
		leave()
		return nil, err
	}
	origins := s.catalog.Use(fetch.IndexOf(sh).Origins()...)
	fetch.OnClose(sh, func() { release(); origins(); leave() })
	return sh, nil
}

// FetchRank is Fetch of the shard of any rank of the epoch, of however many ranks that is. It never reads
// Options.Memory.
func (s *Store) FetchRank(ctx context.Context, e Epoch, rank int) (*Shard, error) {
	return s.fetch(ctx, e, rank, s.sources(e, rank, ""))
}

// Entries returns the manifest's entries for all ranks' shards of an epoch, from the nearest level where it can be
// read. Choose has said which contents the epoch has. The caller must not change the result. It reads one manifest.
func (s *Store) Entries(ctx context.Context, e Epoch) ([]ShardInfo, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	defer s.catalog.Use(e)()
	var failed []error
	for _, l := range s.levels {
		m, err := s.catalog.Manifest(ctx, l.Level, e)
		if err == nil && !s.catalog.Contents.Allows(e, m.ID) {
			err = fmt.Errorf("level %s has other contents of epoch %d: %w", l.Name(), e, ErrNotCommitted)
		}
		if err == nil {
			return m.Shards, nil
		}
		failed = append(failed, err)
	}
	return nil, s.fault("fetch", e, "any", errors.Join(failed...))
}

// ownSource is the own directory of a level. A manifest that is missing there
// may be at other ranks: it was written after all shards were durable, wherever
// it is.
type ownSource struct {
	s *Store
	l *levelState
}

func (o *ownSource) Name() string { return o.l.Name() }

func (o *ownSource) Locate(ctx context.Context, e Epoch, rank int) (*shard.Extent, error) {
	if info, id := o.l.Listed.Shard(e); info != nil && rank == o.s.opt.Rank {
		if !o.s.catalog.Contents.Allows(e, func() [16]byte { return id }) {
			return nil, &level.OtherContentsError{File: level.FileOf(o.l, e, format.ManifestName), Epoch: e}
		}
		return fetch.OpenExtent(o.l, e, info.FileName(), *info)
	}
	m, err := o.s.catalog.Manifest(ctx, o.l.Level, e)
	if err != nil {
		return nil, err
	}
	return fetch.LocateIn(o.l, m, rank)
}

// peerSource is a level's directory at another rank.
type peerSource struct {
	s    *Store
	l    *levelState
	rank int
}

func (p *peerSource) Name() string { return p.l.Name() }

func (p *peerSource) Locate(ctx context.Context, e Epoch, rank int) (*shard.Extent, error) {
	x, err := p.with(ctx, func(d level.Epochs) (*shard.Extent, error) { return fetch.At(d).Locate(ctx, e, rank) })
	if err == nil || ctx.Err() != nil {
		return x, err
	}
	// The shard may be there all the same, and the manifest at another rank.
	m, merr := p.s.catalog.Manifest(ctx, p.l.Level, e)
	if merr != nil {
		return nil, err
	}
	return p.with(ctx, func(d level.Epochs) (*shard.Extent, error) { return fetch.LocateIn(d, m, rank) })
}

// with uses the directory through a connection that ends with the call; files
// that were opened keep their own.
func (p *peerSource) with(ctx context.Context, do func(d level.Epochs) (*shard.Extent, error)) (*shard.Extent, error) {
	// The files outlive this call, and their users pass their own contexts.
	d, f := p.s.catalog.PeerDir(context.WithoutCancel(ctx), p.rank, p.l.Level)
	x, err := do(d)
	if cerr := f.Close(); cerr != nil && err == nil {
		err = errors.Join(cerr, x.Close())
	}
	if err == nil {
		x.Name = fmt.Sprintf("rank %d:%s", p.rank, x.Name)
	}
	return x, err
}

// sources lists where the shards of e of a rank may be had, nearest level
// first and in each level the own directory first; the level called first comes
// before all.
func (s *Store) sources(e Epoch, rank int, first string) []shard.Source {
	var out, front []shard.Source
	for _, l := range s.levels {
		list := l.sources(e, rank)
		if l.Name() == first {
			front = list
		} else {
			out = append(out, list...)
		}
	}
	return append(front, out...)
}
