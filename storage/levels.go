package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/catalog"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/peer"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// levelState is a level with this rank's state of it.
type levelState struct {
	*catalog.Level
	scheme
	cfg    LevelConfig
	pace   *shard.Pace
	served peer.Dir    // the level as other ranks see it
	memory *peer.MemFS // serves the shards from memory; nil: no rank reads here

	resized atomic.Bool // its marker has another number of ranks

	copied atomic.Int64 // bytes written here for copies from other levels

	mu   sync.Mutex
	puts map[Epoch][]*format.Index // guarded by mu: put here and not yet committed
	base map[int]*format.Index     // guarded by mu: last committed shard of each rank put here

	bases   bases    // guarded by mu: of later shards, where parity is computed from them
	adopted *adopted // guarded by mu: the restored shard, for the first ones of this run; may be nil
}

// chooseLevel selects the parts of the configured level.
func (s *Store) chooseLevel(cfg LevelConfig) *levelState {
	fsys, traits := s.opt.fs, level.TraitsOf(cfg.Name)
	l := &levelState{cfg: cfg, pace: shard.NewPace(cfg.BytesPerSec), puts: map[Epoch][]*format.Index{},
		base: map[int]*format.Index{}}
	if traits.Data && s.opt.Transport != nil {
		l.memory = &peer.MemFS{FS: fsys}
		fsys = l.memory
	}
	at := level.At(fsys, cfg.Name, cfg.Dir, s.opt.Rank, &s.catalog.Contents)
	level.ForRun(at, s.opt.Run)
	if s.opt.Collective && traits.Shared && s.opt.Rank == 0 {
		at.ForAll()
	}
	l.served = peer.Dir{FS: fsys, Path: cfg.Dir, Writable: traits.WrittenByOthers}
	switch own := (ownFiles{s, l}); {
	case traits.Rows:
		l.scheme = &parityRows{s, l}
	case traits.Copies:
		l.scheme = &partnerCopies{own}
	default:
		l.scheme = &own
	}
	l.Level = &catalog.Level{Level: at, Keep: cfg.Keep, KeepEvery: cfg.KeepEvery, Reachable: l.reachable}
	s.catalog.Add(l.Level)
	return l
}

// packs returns the level as one that is not Single.
func (l *levelState) packs() level.Packs { return l.Level.Level.(level.Packs) }

func (s *Store) withTraits(has func(t level.Traits) bool) *levelState {
	for _, l := range s.levels {
		if has(l.Traits()) {
			return l
		}
	}
	return nil
}

// openLevel returns the level even if it fails.
func (s *Store) openLevel(ctx context.Context, cfg LevelConfig) (*levelState, error) {
	l := s.chooseLevel(cfg)
	if !s.catalog.Looks(l.Level) {
		found, err := catalog.ListingOf(s.opt.Overview, cfg.Name)
		if err != nil {
			return l, err
		}
		if found != nil {
			return l, s.openListed(l, found)
		}
	}
	if err := l.Prepare(cfg.Create); err != nil {
		return l, err
	}
	if err := s.claim(l); err != nil {
		return l, err
	}
	// Before anything of an earlier run is cleared away: it may be alive.
	if err := s.guard.Take(ctx, l); err != nil {
		return l, err
	}
	// The state that FindOwners saw may have changed before the directory was locked.
	if err := level.ClaimRun(l, s.opt.Identity, func() error {
		at := s.opt.owner(ctx, l.Name(), l.Path())
		if err := at.Fits(s.opt.Identity, s.opt.StartOver, ""); err != nil {
			return err
		}
		return level.WriteAttempts(l, nil, 0) // attempts at another run's epochs do not count
	}); err != nil {
		return l, err
	}
	return l, errors.Join(l.ClearTemps(), level.BeginHistory(l))
}

// openListed opens a level that rank 0 has opened for all. The first rank of each node tries
// whether the node can write there.
func (s *Store) openListed(l *levelState, found *catalog.Listing) error {
	l.Listed = found
	if len(s.opt.Nodes) == s.opt.Size && slices.Index(s.opt.Nodes, s.opt.Nodes[s.opt.Rank]) != s.opt.Rank {
		return nil
	}
	return l.Prepare(false)
}

// claim makes the level's directory this job's. An elastic job takes over one of another number of ranks.
func (s *Store) claim(l *levelState) error {
	err := level.Claim(l, s.markerOf(l.Name()))
	if s.opt.Elastic && errors.As(err, new(*SizeError)) {
		l.resized.Store(true)
		return nil
	}
	return err
}

// updateMarker makes the directory of a level one of this job's number of ranks, and puts a lost marker back.
func (s *Store) updateMarker(l *levelState) error {
	if l.resized.Load() {
		if err := level.RewriteMarker(l, s.markerOf(l.Name())); err != nil {
			return err
		}
		l.resized.Store(false)
	}
	return l.RestoreMarker(s.markerOf(l.Name()))
}

func (s *Store) at(name string) (*levelState, error) {
	for _, l := range s.levels {
		if l.Name() == name {
			return l, nil
		}
	}
	return nil, &OptionError{Field: "Levels", Reason: fmt.Sprintf("level %q has no directory", name)}
}

// Unwritable returns the levels that this rank cannot write to, with the reason for each, with Options.Degrade. Their
// epochs are still read where that is possible. The map is the caller's.
func (s *Store) Unwritable() map[string]error {
	out := map[string]error{}
	for _, l := range s.levels {
		if l.Unwritable != nil {
			out[l.Name()] = l.Unwritable
		}
	}
	return out
}

// Use sets the levels that the ranks agreed to write to; the others are only read. All ranks call it with the same
// levels, once, after Open, with at least one.
func (s *Store) Use(levels []string) {
	for _, l := range s.levels {
		if l.Unwritable == nil && !slices.Contains(levels, l.Name()) {
			l.Unwritable = errNotUsed
		}
	}
}

var errNotUsed = errors.New("other ranks cannot write to this level")

// degradable reports whether the job can do without the directory. A directory that is another job's, in use, or not to
// be trusted is refused all the same.
func degradable(err error) bool {
	return errors.As(err, new(*DirError)) && !errors.Is(err, level.ErrOtherLevel) && !errors.Is(err, vfs.ErrUnsafe)
}

// setUnwritable continues with a level that cannot be written to because of why. The files there may be another job's,
// or another run of this job may be using them.
func (s *Store) setUnwritable(ctx context.Context, l *levelState, why error) error {
	l.Unwritable = why
	have, err := level.ReadMarker(l)
	if err != nil {
		return nil // nothing to be had from it, then
	}
	if err := level.Fits(l, have, s.markerOf(l.Name())); err != nil {
		return err
	}
	return s.guard.Unused(ctx, l)
}
