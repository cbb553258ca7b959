package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sort"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// Candidate is an epoch that this rank can restore.
type Candidate struct {
	Epoch  format.Epoch
	ID     [16]byte // identifies the contents; ranks must agree on it too
	Levels []string // nearest first
	Deaths int      // how often the program died right after restoring it
	Size   int      // of how many ranks it is
}

// LevelState describes an epoch at one level, for one rank.
type LevelState struct {
	Epoch format.Epoch
	Level string
	ID    [16]byte         // identifies the contents
	Size  int              // of how many ranks it is
	Shard format.ShardInfo // of this rank; valid when Err is nil and Size is that of the job
	Err   error            // why the level does not serve; ErrNotCommitted: no manifest

	missing map[int]bool // of an epoch of another number of ranks: those whose shards this rank looked for in vain
}

// A Memory reports whether a shard lies in memory, so that it need not be looked for in files.
type Memory func(e format.Epoch, info *format.ShardInfo) bool

func inFiles(format.Epoch, *format.ShardInfo) bool { return false }

// Candidates lists the epochs that this rank can restore, and those that it can read from no level; see
// storage.Store.Candidates.
func (c *Catalog) Candidates(ctx context.Context, memory Memory) (list []Candidate, unreadable []format.Epoch,
	err error) {
	states, err := c.Survey(ctx, memory)
	if err != nil {
		return nil, nil, err
	}
	deaths := c.attempts()
	notHere, bad := map[format.Epoch]bool{}, map[format.Epoch]bool{}
	for _, st := range joinLevels(states) {
		if st.Err != nil {
			if errors.Is(st.Err, level.ErrNotCommitted) {
				continue
			}
			if level.OfOtherRun(st.Err) {
				c.warnOther(st.Epoch, st.Level, st.Err)
				continue
			}
			bad[st.Epoch] = true
			if errors.Is(st.Err, fs.ErrNotExist) { // ranks were placed elsewhere, most likely
				notHere[st.Epoch] = true
			} else {
				c.Log.Warn("holdfast: level cannot supply an epoch", "epoch", st.Epoch, "level", st.Level, "err",
					st.Err)
			}
			continue
		}
		i := slices.IndexFunc(list, func(x Candidate) bool { return x.Epoch == st.Epoch && x.ID == st.ID })
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
	if len(notHere) > 0 {
		c.Log.Info("holdfast: this node lacks epochs of this rank at a level; other levels and nodes are read instead",
			"epochs", slices.Sorted(maps.Keys(notHere)))
	}
	return list, format.NewestFirst(maps.Keys(bad)), newerRelease(states, list)
}

// joinLevels clears the errors of levels that have all shards of an epoch together, if none has all: after the loss of
// a node some shards of an epoch of another number of ranks are at the level local, and others are copies.
func joinLevels(states []LevelState) []LevelState {
	type contents struct {
		epoch format.Epoch
		id    [16]byte
	}
	nowhere := map[contents]map[int]bool{} // ranks whose shards are missing at every level that has some
	for i := range states {
		st := &states[i]
		if st.Err != nil && st.missing == nil {
			continue // the level has no manifest
		}
		key := contents{st.Epoch, st.ID}
		if _, seen := nowhere[key]; !seen {
			nowhere[key] = maps.Clone(st.missing)
			continue
		}
		maps.DeleteFunc(nowhere[key], func(r int, _ bool) bool { return !st.missing[r] })
	}
	out := slices.Clone(states)
	for i := range out {
		if st := &out[i]; st.missing != nil && len(nowhere[contents{st.Epoch, st.ID}]) == 0 {
			st.Err = nil
		}
	}
	return out
}

// newerRelease returns an error if an epoch newer than the listed ones is of a version that this build does not know.
func newerRelease(states []LevelState, list []Candidate) error {
	for _, st := range states { // newest first
		if len(list) > 0 && st.Epoch <= list[0].Epoch {
			break
		}
		if errors.As(st.Err, new(*format.VersionError)) {
			return fmt.Errorf("the newest epoch is %d, and a later release of Holdfast has written it: %w, or restore "+
				"an older epoch with HOLDFAST_EPOCH", st.Epoch, st.Err)
		}
	}
	return nil
}

// Survey describes every epoch found at any level, newest epoch first and levels nearest first. Directories of other
// ranks count if Learn knows them.
func (c *Catalog) Survey(ctx context.Context, memory Memory) ([]LevelState, error) {
	var out []LevelState
	for _, l := range c.levels {
		list, err := c.survey(ctx, l, memory)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Epoch > out[j].Epoch })
	return out, nil
}

// survey is Survey of one level, oldest epoch first. Files of a shard that is in memory are not looked at.
func (c *Catalog) survey(ctx context.Context, l *Level, memory Memory) (out []LevelState, err error) {
	epochs, err := c.epochsAt(l)
	for i := 0; i < len(epochs) && err == nil; i++ {
		if err = ctx.Err(); err == nil {
			out = append(out, c.stateAt(ctx, l, epochs[i], memory))
		}
	}
	return out, err
}

// Pending lists the epochs that are committed at from, to this rank's knowledge, and newer than the newest at to,
// oldest first.
func (c *Catalog) Pending(ctx context.Context, from, to *Level) (list []Candidate, err error) {
	var newest format.Epoch
	if to.Listed == nil {
		if newest, err = NewestReadable(to); err != nil {
			return nil, err
		}
	} else {
		to.mu.Lock()
		newest = max(to.Listed.newest(), to.agreed.newest)
		to.mu.Unlock()
	}
	states, err := c.survey(ctx, from, inFiles)
	if err != nil {
		return nil, err
	}
	for _, st := range states { // oldest first
		if st.Err == nil && st.Epoch > newest && st.Size == c.Size {
			list = append(list, Candidate{Epoch: st.Epoch, ID: st.ID, Levels: []string{from.Name()}})
		}
	}
	return list, nil
}

// epochsAt lists the epochs of a level, here and at other ranks.
func (c *Catalog) epochsAt(l *Level) ([]format.Epoch, error) {
	set := map[format.Epoch]bool{}
	var own []format.Epoch
	if l.Listed != nil {
		for i := range l.Listed.epochs {
			set[l.Listed.epochs[i].epoch] = true
		}
	} else {
		var err error
		if own, err = l.Epochs(); err != nil && l.Unwritable == nil {
			return nil, err
		}
	}
	for _, e := range own {
		set[e] = true
	}
	for _, e := range c.Others.Epochs(l.Name()) {
		set[e] = true
	}
	return slices.Sorted(maps.Keys(set)), nil
}

func (c *Catalog) stateAt(ctx context.Context, l *Level, e format.Epoch, memory Memory) LevelState {
	st := LevelState{Epoch: e, Level: l.Name(), Err: level.ErrNotCommitted}
	if l.Listed != nil { // rank 0 has looked
		x := l.Listed.find(e)
		if x == nil {
			return st
		}
		st.ID, st.Size, st.Err = x.id, x.size, x.err
		if x.err == nil && x.shard != nil {
			st.Shard = *x.shard
			if !memory(e, x.shard) {
				st.Err = level.ProbeShard(l, e, x.shard)
			}
		}
		return st
	}
	m, err := c.Manifest(ctx, l, e)
	if err == nil {
		err = c.fits(l, m)
	}
	if st.Err = err; err == nil {
		st.ID, st.Size = m.ID(), m.Size
		if m.Size == c.Size {
			st.Shard = m.Shards[c.Rank]
		}
		for _, r := range c.lookedAt(m.Size) {
			if memory(e, &m.Shards[r]) {
				continue
			}
			rerr := l.Reachable(ctx, m, r)
			if rerr != nil && m.Size != c.Size {
				if st.missing == nil {
					st.missing = map[int]bool{}
				}
				st.missing[r] = true
			}
			st.Err = cmp.Or(st.Err, rerr)
		}
	}
	return st
}

// lookedAt lists the ranks of an epoch of that size whose shards this rank checks: its own, or its share if the number
// of ranks differs.
func (c *Catalog) lookedAt(size int) (ranks []int) {
	if size == c.Size {
		return []int{c.Rank}
	}
	for r := c.Rank % size; r < size; r += c.Size {
		ranks = append(ranks, r)
	}
	return ranks
}

// Highest returns the greatest epoch number that any level has seen; see storage.Store.Highest.
func (c *Catalog) Highest(ctx context.Context) (format.Epoch, error) {
	highest := format.Epoch(0)
	for _, l := range c.levels {
		epochs, err := c.epochsAt(l)
		if err != nil {
			return 0, err
		}
		for _, e := range epochs {
			if e <= format.MaxCounted {
				highest = max(highest, e)
			} else if c.stateAt(ctx, l, e, inFiles).Err == nil {
				return 0, fmt.Errorf("epoch %d at level %s leaves no numbers for new epochs: remove %s there", e,
					l.Name(), format.EpochName(e))
			}
		}
	}
	return highest, ctx.Err()
}
