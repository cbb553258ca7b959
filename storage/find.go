package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// Candidate is an epoch that this rank can restore.
type Candidate struct {
	Epoch  Epoch
	ID     [16]byte // identifies what was committed; ranks must agree on it too
	Levels []string // nearest first
	Deaths int      // how often the program died right after restoring it
	Size   int      // of how many ranks it is; see Options.Elastic
}

// LevelState describes an epoch at one level, for one rank.
type LevelState struct {
	Epoch Epoch
	Level string
	ID    [16]byte  // identifies what was committed
	Size  int       // of how many ranks it is
	Shard ShardInfo // of this rank; valid when Err is nil and Size is that of the job
	Err   error     // why the level does not serve; ErrNotCommitted: no manifest

	lacks map[int]bool // of an epoch of another number of ranks: of whose shards that this rank looks at it has none
}

// Candidates lists the committed epochs whose shard of this rank is readable,
// newest first, by cheap checks: the manifest, the length of the shard and its
// footer. Reading may still find damage. The caller skips those with too many Deaths
// (see NoteRestore).
//
// Unreadable lists, newest first, the epochs that are committed at some level, or
// have a damaged manifest, and that this rank can read from no level. Skipping one
// of them loses work, so the caller reports it.
//
// A *VersionError says that a later release of Holdfast has written an epoch newer than the newest of the list:
// this one would go back behind it. The lists are valid nevertheless.
func (s *Store) Candidates(ctx context.Context) (list []Candidate, unreadable []Epoch, err error) {
	states, err := s.Survey(ctx)
	if err != nil {
		return nil, nil, err
	}
	deaths := s.readAttempts()
	elsewhere, bad := map[Epoch]bool{}, map[Epoch]bool{}
	for _, st := range together(states) {
		if st.Err != nil {
			if errors.Is(st.Err, ErrNotCommitted) {
				continue
			}
			if level.OfOtherRun(st.Err) {
				s.sayOther(st.Epoch, st.Level, st.Err)
				continue
			}
			bad[st.Epoch] = true
			if errors.Is(st.Err, fs.ErrNotExist) { // ranks were placed elsewhere, most likely
				elsewhere[st.Epoch] = true
			} else {
				s.log.Warn("holdfast: level cannot supply an epoch", "epoch", st.Epoch, "level", st.Level, "err",
					st.Err)
			}
			continue
		}
		i := slices.IndexFunc(list, func(c Candidate) bool { return c.Epoch == st.Epoch && c.ID == st.ID })
		if i < 0 {
			list = append(list, Candidate{Epoch: st.Epoch, ID: st.ID, Size: st.Size,
				Deaths: deaths[st.Epoch]})
			i = len(list) - 1
		}
		list[i].Levels = append(list[i].Levels, st.Level)
	}
	for i := range list {
		delete(bad, list[i].Epoch)
	}
	if len(elsewhere) > 0 {
		s.log.Info("holdfast: this node lacks epochs of this rank at a level; other levels and nodes are read instead",
			"epochs", format.SortedEpochs(elsewhere))
	}
	unreadable = format.SortedEpochs(bad)
	slices.Reverse(unreadable)
	return list, unreadable, ofLater(states, list)
}

// together finds levels that serve together where none does alone: after the loss of a node some shards of an epoch of
// another number of ranks are at the level local, and others are copies.
func together(states []LevelState) []LevelState {
	type contents struct {
		epoch Epoch
		id    [16]byte
	}
	short := map[contents]map[int]bool{} // ranks whose shards no level has
	for i := range states {
		st := &states[i]
		if st.Err != nil && st.lacks == nil {
			continue
		}
		of := contents{st.Epoch, st.ID}
		none, seen := short[of]
		if !seen {
			none = maps.Clone(st.lacks)
		}
		maps.DeleteFunc(none, func(r int, _ bool) bool { return !st.lacks[r] })
		short[of] = none
	}
	out := slices.Clone(states)
	for i := range out {
		if st := &out[i]; st.lacks != nil && len(short[contents{st.Epoch, st.ID}]) == 0 {
			st.Err = nil
		}
	}
	return out
}

// ofLater says that an epoch newer than those of the list is of a version that this build does not know.
func ofLater(states []LevelState, list []Candidate) error {
	for _, st := range states { // newest first
		var later *VersionError
		if len(list) > 0 && st.Epoch <= list[0].Epoch {
			break
		}
		if errors.As(st.Err, &later) {
			return fmt.Errorf("the newest epoch is %d, and a later release of Holdfast has written it: %w, or restore "+
				"an older epoch with HOLDFAST_EPOCH", st.Epoch, st.Err)
		}
	}
	return nil
}

// Choose tells the store what an epoch contains, by the ID of a Candidate that all ranks
// have. From then on a directory with other contents under the number counts as damaged:
// it is of another run with the job's name, say, and came back with its node.
func (s *Store) Choose(e Epoch, id [16]byte) { s.contents.Set(e, id) }

// Survey describes every epoch found at any level, newest epoch first and levels
// nearest first. Directories of other ranks count as far as Learn has been told of
// them.
func (s *Store) Survey(ctx context.Context) ([]LevelState, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	var out []LevelState
	for _, l := range s.levels {
		list, err := s.survey(ctx, l, s.opt.Memory)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	slices.SortStableFunc(out, func(a, b LevelState) int { return cmp.Compare(b.Epoch, a.Epoch) })
	return out, nil
}

// survey is Survey of one level, oldest epoch first. Files of a shard that is in memory are not looked at.
func (s *Store) survey(ctx context.Context, l *levelState, m *MemoryShard) (out []LevelState, err error) {
	epochs, err := s.epochsAt(l)
	for i := 0; i < len(epochs) && err == nil; i++ {
		if err = ctx.Err(); err == nil {
			out = append(out, s.stateAt(ctx, l, epochs[i], m))
		}
	}
	return out, err
}

// Pending lists the epochs that are committed at from, as far as this rank can
// tell, and newer than the newest at to, oldest first: a job that died in the
// middle of a flush left them, and the next one can Flush and Commit those that all
// ranks have with the same ID.
func (s *Store) Pending(ctx context.Context, from, to string) (list []Candidate, err error) {
	l, err := s.at(to)
	if err != nil {
		return nil, err
	}
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	var newest Epoch
	if l.told == nil {
		if newest, err = level.NewestCommitted(l); err != nil {
			return nil, err
		}
	} else {
		l.mu.Lock()
		newest = max(l.told.newest(), l.agreed.newest)
		l.mu.Unlock()
	}
	first, err := s.at(from)
	if err != nil {
		return nil, err
	}
	states, err := s.survey(ctx, first, nil)
	if err != nil {
		return nil, err
	}
	for _, st := range states { // oldest first
		if st.Err == nil && st.Epoch > newest && st.Size == s.opt.Size {
			list = append(list, Candidate{Epoch: st.Epoch, ID: st.ID, Levels: []string{from}})
		}
	}
	return list, nil
}

// epochsAt lists the epochs of a level, here and at other ranks.
func (s *Store) epochsAt(l *levelState) ([]Epoch, error) {
	set := map[Epoch]bool{}
	var own []Epoch
	if l.told != nil {
		for i := range l.told.epochs {
			set[l.told.epochs[i].epoch] = true
		}
	} else {
		var err error
		if own, err = l.Epochs(); err != nil && l.out == nil {
			return nil, err
		}
	}
	for _, e := range own {
		set[e] = true
	}
	for _, e := range s.known.Epochs(l.Name()) {
		set[e] = true
	}
	return format.SortedEpochs(set), nil
}

// stateAt looks at one epoch of one level.
func (s *Store) stateAt(ctx context.Context, l *levelState, e Epoch, memory *MemoryShard) LevelState {
	if l.told != nil {
		return s.stateTold(l, e, memory)
	}
	st := LevelState{Epoch: e, Level: l.Name()}
	m, err := s.manifestOf(ctx, l, e)
	if err == nil {
		err = s.fits(l, m)
	}
	if st.Err = err; err == nil {
		st.ID, st.Size = m.ID(), m.Size
		if m.Size == s.opt.Size {
			st.Shard = m.Shards[s.opt.Rank]
		}
		for _, r := range s.lookedAt(m.Size) {
			if memory.holds(e, &m.Shards[r]) {
				continue
			}
			rerr := l.reachable(ctx, m, r)
			if rerr != nil && m.Size != s.opt.Size {
				if st.lacks == nil {
					st.lacks = map[int]bool{}
				}
				st.lacks[r] = true
			}
			st.Err = cmp.Or(st.Err, rerr)
		}
	}
	return st
}

// lookedAt lists the ranks of an epoch whose shards this rank makes sure of, when its ranks are so many: its own, or
// its share of those of another number.
func (s *Store) lookedAt(size int) (ranks []int) {
	if size == s.opt.Size {
		return []int{s.opt.Rank}
	}
	for r := s.opt.Rank % size; r < size; r += s.opt.Size {
		ranks = append(ranks, r)
	}
	return ranks
}

// Highest is the greatest epoch number that any level of this rank has seen,
// committed or not; 0 when there is none. The next epoch must be greater than
// that of every rank. Numbers that no job counts up to are passed over: somebody made such
// a directory by hand, and epochs that follow it would have names that are none.
func (s *Store) Highest(ctx context.Context) (Epoch, error) {
	leave, err := s.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	highest := Epoch(0)
	for _, l := range s.levels {
		epochs, err := s.epochsAt(l)
		if err != nil {
			return 0, err
		}
		for _, e := range epochs {
			if e <= format.MaxCounted {
				highest = max(highest, e)
			} else if s.stateAt(ctx, l, e, nil).Err == nil {
				return 0, fmt.Errorf("epoch %d at level %s leaves no numbers for new epochs: remove %s there", e,
					l.Name(), format.EpochName(e))
			}
		}
	}
	return highest, ctx.Err()
}
