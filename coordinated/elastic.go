package coordinated

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/arrays"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/storage"
)

// CountError names the state that keeps an epoch from being restored by another number of ranks than wrote it.
type CountError struct {
	Epoch      storage.Epoch
	Have, Want int      // ranks: of the epoch, and of this job
	PerRank    []string // state that is protected per rank, in the epoch or now
	NotQuiet   []int    // ranks of the epoch with messages in flight to them, or receives pending
	Undeclared []int    // ranks of the epoch that say nothing of arrays

	program language
}

// language is that of the program that reads an error; the zero value is for tools, which do not know it.
type language int

const (
	unknown language = iota
	inGo
	inOther
)

func (c *Checkpointer) language() language {
	if c.main.foreign != nil {
		return inOther
	}
	return inGo
}

// elastic returns the way in which a program declares that it is elastic.
func (l language) elastic() string {
	return [...]string{"hf_elastic, elastic=True in Python, Options.Elastic in Go", "Options.Elastic",
		"hf_elastic, in Python Session(elastic=True)"}[l]
}

// protect names the calls that protect data for any number of ranks.
func (l language) protect() string {
	return [...]string{"a call for a global array, a list, a set of items or a replicated value",
		"ProtectGlobal, ProtectList or ProtectReplicated",
		"hf_protect_global or hf_protect_replicated (Python: protect_global, protect_replicated)"}[l]
}

// quiet names the setting that waits for a cut with nothing in flight.
func (l language) quiet() string {
	if l == inGo {
		return "Options.Quiet (HOLDFAST_QUIET)"
	}
	return "HOLDFAST_QUIET"
}

// Error gives both numbers, the obstacle, and the remedy.
func (e *CountError) Error() string {
	s := fmt.Sprintf("epoch %d was written by %d ranks and cannot be restored by %d: ", e.Epoch, e.Have, e.Want)
	switch {
	case len(e.Undeclared) > 0:
		s += fmt.Sprintf("rank(s) %s wrote it without being elastic (%s)", outcome.Ranks(e.Undeclared),
			e.program.elastic())
	case len(e.PerRank) > 0:
		s += are(e.PerRank) + " protected per rank; use " + e.program.protect() +
			" for what any number of ranks is to restore"
	default:
		s += fmt.Sprintf("rank(s) %s had messages on their way to them or receives pending; take checkpoints where "+
			"none are, or set %s, which waits for that", outcome.Ranks(e.NotQuiet), e.program.quiet())
	}
	return s + fmt.Sprintf(", or start %d ranks", e.Have)
}

// another reports whether another epoch may be one that can be restored.
func (e *CountError) another() bool { return len(e.Undeclared) == 0 && len(e.PerRank) == 0 }

// are returns the subject of a sentence: names in quotes, with their verb.
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

// resizable returns an error if an epoch of another number of ranks cannot be restored by this one. Every rank looks at
// all entries, and into its share of the shards that are in the way, to name the obstacles.
func (c *Checkpointer) resizable(ctx context.Context, src *shards, size int) error {
	infos, err := src.Entries(ctx)
	if err != nil {
		return err
	}
	bad := &CountError{Epoch: src.epoch, Have: size, Want: c.topo.Size(), PerRank: c.state.PerRank(),
		program: c.language()}
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

func (s *shards) Own() *storage.Shard { return s.own }

// Size returns the number of ranks of the epoch.
func (s *shards) Size() int { return s.size }

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
	s.level = cmp.Or(s.level, sh.Level())
	if want := s.infos; want != nil && sh.Digest() != want[rank].Digest {
		return fmt.Errorf("the shard of rank %d is not the one of the manifest: %w", rank, storage.ErrCorrupt)
	}
	return read(sh)
}

// perRank names the per-rank state in a shard.
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

// compareDeclared checks, before anything is restored, that the ranks' declarations of arrays fit together: an error
// that every checkpoint would have ends the program now, on all ranks alike. Rank 0 compares; the others get the
// outcome. A program in another process declares its arrays again at each checkpoint, which checks them.
func (c *Checkpointer) compareDeclared() error {
	data := arrays.Nothing()
	if c.main.foreign == nil {
		var err error
		if data, err = c.state.Declared(); err != nil {
			data = arrays.Failed(err)
		}
	}
	verdict, err := c.meetDeclared(0, "arrays", data)
	return errors.Join(verdict, err)
}

// meetDeclared compares the ranks' declarations at a stage of Restore, and returns their error.
func (c *Checkpointer) meetDeclared(e cut.Epoch, stage string, data []byte) (verdict, err error) {
	c.main.Meeting.Store(true)
	defer c.main.Meeting.Store(false)
	blobs, err := c.agent.Meet(c.life.ctx, cut.Meeting{Epoch: e, Stage: agent.StageRestore + stage,
		Data: data, Brief: arrays.Judge, Whole: func(int) bool { return false }})
	if err != nil {
		return nil, err
	}
	return arrays.Verdict(blobs), nil
}

// stageDivided is the stage of a cut in which ranks report the division of arrays that change.
const stageDivided = "divided"

// divided asks the program how arrays that change are divided now, and compares it with the other ranks'. Without such
// arrays it returns at once, and costs nothing. A rank that has failed before does not wait for the others, but
// releases them.
func (c *Checkpointer) divided(ctx context.Context, es *EpochStats, failed error) error {
	if !c.state.Changes() {
		return failed
	}
	var mine []byte
	err := failed
	if err == nil {
		mine, err = c.state.Divided()
	}
	if err != nil {
		return errors.Join(err, c.agent.Contribute(c.life.ctx, cut.Epoch(es.Epoch), stageDivided, arrays.Failed(err)))
	}
	blobs, err := c.agent.Meet(ctx, cut.Meeting{Epoch: cut.Epoch(es.Epoch), Stage: stageDivided, Data: mine,
		Brief: c.state.JudgeDivided, Whole: func(int) bool { return false }})
	if err != nil {
		return fmt.Errorf("compare how arrays are divided: %w", err)
	}
	return c.state.Place(c.state.JudgeDivided(blobs), c.topo.Rank)
}

// planned asks the program for its share of the arrays of an epoch that change, and checks that all ranks together want
// each element once: elements in a hole would be lost. Not ready: another rank has failed, as the vote will show.
func (c *Checkpointer) planned(ctx context.Context, src *shards, a *arrays.Attempt, e storage.Epoch,
	failed error) (ready bool, err error) {
	if !c.state.Changes() {
		return failed == nil, failed
	}
	var data []byte
	err = failed
	if err == nil {
		data, err = a.Plan(ctx, src)
	}
	if err != nil {
		data = arrays.Failed(nil)
	}
	verdict, merr := c.meetDeclared(cut.Epoch(e), "division", data)
	switch {
	case err != nil || merr != nil:
		return false, errors.Join(err, merr)
	case errors.Is(verdict, arrays.ErrNotDeclared):
		return false, nil
	case verdict != nil:
		return false, arrays.Unfit(verdict)
	}
	return true, nil
}

// Saved describes a part of a rank's shard of an epoch: a value that the program protected under a name, a memory
// object of a protected device, or a section of another use. Its bytes are those from Off on of the Section of the
// shard.
//
//	Name    string // that the program gave it; of a device's memory, the device's and its own: "gpu/density"
//	Kind    string // "slice float64", "buffer", ...; empty: this package has not written it
//	Bytes   int64
//	Section string
//	Off     int64 // in the section
type Saved = capture.Item

// ListSaved lists the contents of a shard, without the program that wrote it. Local; it reads the shard's index, not
// its data. It reads the table of variables and the records of devices, and no other data. A shard that this package
// has not written yields its sections.
func ListSaved(ctx context.Context, sh *storage.Shard) ([]Saved, error) { return capture.List(ctx, sh) }
