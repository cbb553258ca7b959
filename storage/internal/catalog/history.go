package catalog

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// History joins the levels' records of the job's past.
type History struct {
	Epoch format.Epoch // that all ranks had committed; 0: none yet
	Level string       // where
	Nodes []string     // of the run that did
	// NoRecord reports that a directory has epochs and no record: an older build wrote them.
	NoRecord bool
}

// History reads the levels' records of the job's past. It fails if none has an epoch and one has no epochs and a
// damaged note (*level.DirError), which may have named some.
func (c *Catalog) History(ctx context.Context) (all History, err error) {
	var unclear error
	for _, l := range c.levels {
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
		b, err := level.ReadHistory(l)
		switch {
		case err != nil:
			epochs, lerr := l.Epochs()
			all.NoRecord = all.NoRecord || lerr == nil && slices.ContainsFunc(epochs, func(e format.Epoch) bool {
				_, err := l.ReadManifest(e)
				return !level.OfOtherRun(err)
			})
			if lerr == nil && (errors.Is(err, format.ErrCorrupt) || errors.Is(err, vfs.ErrUnsafe)) {
				unclear = errors.Join(unclear, &level.DirError{Level: l.Name(), Dir: l.Path(), Err: err,
					Remedy: "give the directories that hold the job's checkpoints, " +
						"or remove " + format.HistoryName + " there if the job never had any"})
			}
		case !c.Owns(b.Run): // a run that this one has replaced had begun
		case b.Epoch >= all.Epoch:
			all.Epoch, all.Level, all.Nodes = b.Epoch, b.Level, b.Nodes
		}
	}
	if all.Epoch > 0 || all.NoRecord {
		unclear = nil
	}
	return all, unclear
}

// RecordHistory records, at all levels that this rank can write to, that all ranks have committed an epoch. At the
// global level rank 0 does this for all. The error joins the levels that did not take the record.
func (c *Catalog) RecordHistory(ctx context.Context, e format.Epoch, at string) (err error) {
	nodes := slices.Compact(slices.Sorted(slices.Values(c.Nodes)))
	b := format.History{Epoch: e, Level: at, Nodes: nodes, Run: c.Identity}
	for _, l := range c.working() {
		if l.Traits().Shared && c.Rank != 0 {
			continue
		}
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if werr := level.WriteHistory(l, &b); werr != nil {
			err = errors.Join(err, werr)
		}
	}
	return err
}
