package coordinated

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/storage"
)

// CountError says why an epoch cannot be restored by another number of ranks than it was written by.
type CountError struct {
	Epoch      storage.Epoch
	Have, Want int      // ranks: of the epoch, and of this job
	PerRank    []string // what is protected per rank, in the epoch or now
	NotQuiet   []int    // ranks of the epoch with messages in flight to them, or receives pending
	Undeclared []int    // ranks of the epoch that say nothing of arrays

	far bool // the program is not in Go
}

// How programs say that they are elastic, and what they protect for any number of ranks.
const (
	elasticGo, elasticFar = "Options.Elastic", "hf_elastic, in Python Session(elastic=True)"
	anyGo, anyFar         = "ProtectGlobal, ProtectList or ProtectReplicated",
		"hf_protect_global or hf_protect_replicated (Python: protect_global, protect_replicated)"
)

// Error gives both numbers, what stands in the way, and the remedy.
func (e *CountError) Error() string {
	s := fmt.Sprintf("epoch %d was written by %d ranks and cannot be restored by %d: ", e.Epoch, e.Have, e.Want)
	elastic, any, quiet := elasticGo, anyGo, "Options.Quiet (HOLDFAST_QUIET)"
	if e.far {
		elastic, any, quiet = elasticFar, anyFar, "HOLDFAST_QUIET"
	}
	switch {
	case len(e.Undeclared) > 0:
		s += fmt.Sprintf("rank(s) %s wrote it without being elastic (%s)", vote.Ranks(e.Undeclared), elastic)
	case len(e.PerRank) > 0:
		s += are(e.PerRank) + " protected per rank; use " + any + " for what any number of ranks is to restore"
	default:
		s += fmt.Sprintf("rank(s) %s had messages on their way to them or receives pending; take checkpoints where "+
			"none are, or set %s, which waits for that", vote.Ranks(e.NotQuiet), quiet)
	}
	return s + fmt.Sprintf(", or start %d ranks", e.Have)
}

// another says whether another epoch may be one that can be restored.
func (e *CountError) another() bool { return len(e.Undeclared) == 0 && len(e.PerRank) == 0 }

// are is the subject of a sentence: names in quotes, with their verb.
func are(names []string) string {
	var list []string
	for _, n := range names {
		list = append(list, fmt.Sprintf("%q", n))
	}
	if len(list) == 1 {
		return list[0] + " is"
	}
	return strings.Join(list, ", ") + " are"
}

// resizable says why an epoch of another number of ranks cannot be restored by this one. Every rank looks at all
// entries, and into its share of the shards that stand in the way, to name what does.
func (c *Checkpointer) resizable(ctx context.Context, src *shards, size int) error {
	infos, err := src.Entries(ctx)
	if err != nil {
		return err
	}
	bad := &CountError{Epoch: src.epoch, Have: size, Want: c.topo.Size(), PerRank: c.state.PerRank(),
		far: c.main.far != nil}
	for r := range infos {
		switch l := infos[r].Layout; {
		case l == nil:
			bad.Undeclared = append(bad.Undeclared, r)
		case !l.Quiet:
			bad.NotQuiet = append(bad.NotQuiet, r)
		case l.PerRank && len(bad.PerRank) == 0:
			if bad.PerRank, err = src.perRank(ctx, r); err != nil {
				return err
			}
		}
	}
	if len(bad.Undeclared)+len(bad.PerRank)+len(bad.NotQuiet) > 0 {
		return bad
	}
	return nil
}

// shards is where an epoch is read from.
type shards struct {
	c     *Checkpointer
	epoch storage.Epoch
	size  int            // number of ranks of the epoch
	own   *storage.Shard // nil: the epoch is of another number of ranks
	level string         // from which it was read first
	infos []storage.ShardInfo
}

// Own is this rank's shard.
func (s *shards) Own() *storage.Shard { return s.own }

// Size is the number of ranks of the epoch.
func (s *shards) Size() int { return s.size }

// Entries says what the shards of all ranks have.
func (s *shards) Entries(ctx context.Context) (infos []storage.ShardInfo, err error) {
	if s.infos == nil {
		s.infos, err = s.c.levels.store.Entries(ctx, s.epoch)
	}
	return s.infos, err
}

// With lends the shard of a rank.
func (s *shards) With(ctx context.Context, rank int, read func(sh *storage.Shard) error) (err error) {
	if s.own != nil && s.own.Rank() == rank {
		return read(s.own)
	}
	sh, err := s.c.levels.store.FetchRank(ctx, s.epoch, rank)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	if s.level == "" {
		s.level = sh.Level()
	}
	if want := s.infos; want != nil && sh.Digest() != want[rank].Digest {
		return fmt.Errorf("the shard of rank %d is not the one of the manifest: %w", rank, storage.ErrCorrupt)
	}
	return read(sh)
}

// perRank names what a shard has that is protected per rank.
func (s *shards) perRank(ctx context.Context, rank int) (names []string, err error) {
	err = s.With(ctx, rank, func(sh *storage.Shard) (err error) {
		names, err = s.c.state.SavedPerRank(ctx, sh)
		return err
	})
	slices.Sort(names)
	return names, err
}

func (s *shards) close() {
	if s.own != nil {
		s.c.closeShard(s.own, s.epoch)
	}
}
