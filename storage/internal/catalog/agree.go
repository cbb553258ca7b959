package catalog

import (
	"context"
	"errors"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// agreement has the epochs that the ranks of a job have agreed on. A manifest in this rank's
// directory does not show that the other ranks have theirs: one of them may have failed to
// write it, and then its vote has failed the epoch. Keep rules count only epochs
// that all ranks have, so that all keep the same ones:
//
//  1. After Commit the ranks exchange their outcomes and the epochs that are
//     Present in their directories.
//  2. If it worked for all, each calls Committed, and Agree with the epochs that all have.
//  3. If not, each calls Withdraw. Nothing will refer to the epoch, and Prune
//     removes it once a later one was agreed on.
//
// A program of one rank, or one that does not vote, needs none of this: then
// every readable manifest counts. Once there was a vote at any level, nothing counts
// at a level that other ranks have directories of and that has had none yet: its
// manifests are of an earlier run, which may have died between two of them.
type agreement struct {
	all    map[format.Epoch]bool // that all ranks have; nil: no vote yet
	unsure map[format.Epoch]bool // committed by this rank, not yet by all
	failed map[format.Epoch]bool // given up by a vote
	newest format.Epoch          // that all ranks have voted yes to
}

// unknown reports whether nothing is known of the other ranks' epochs.
func (a *agreement) unknown() bool { return a.all == nil && a.newest == 0 }

// counts reports whether all ranks have an epoch, as far as this one knows.
func (a *agreement) counts(e format.Epoch) bool {
	voting := a.newest > 0
	return !a.failed[e] && !(voting && a.unsure[e]) && (a.all == nil || a.all[e])
}

// Vote notes that the program reports which epochs all ranks have.
func (c *Catalog) Vote() { c.voted.Store(true) }

// Committed notes that an epoch was committed at the level, by this rank or, after a vote, by all.
func (l *Level) Committed(e format.Epoch, byAll bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest = max(l.newest, e)
	switch {
	case byAll:
		l.agreed.newest = max(l.agreed.newest, e)
		delete(l.agreed.unsure, e)
		delete(l.agreed.failed, e)
		if l.agreed.all != nil {
			l.agreed.all[e] = true
		}
		// Epochs of a level come one after the other: the vote on an earlier one is
		// over, and was not a yes.
		for x := range l.agreed.unsure {
			if x < e {
				delete(l.agreed.unsure, x)
				l.agreed.failed[x] = true
			}
		}
	case e > l.agreed.newest:
		l.agreed.unsure[e] = true
	}
}

// Withdraw notes that a vote has failed an epoch: it does not count. The next shard refers to nothing if that one was
// the newest.
func (l *Level) Withdraw(e format.Epoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look = nil
	delete(l.agreed.unsure, e)
	l.agreed.failed[e] = true
	if l.newest == e {
		l.newest = 0
	}
}

// AgreeOn notes which epochs all ranks have.
func (l *Level) AgreeOn(epochs []format.Epoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.agreed.all = map[format.Epoch]bool{}
	for _, e := range epochs {
		l.agreed.all[e] = true
	}
}

// NewestAgreed returns the newest epoch that is committed at the level for sure, in this run.
func (c *Catalog) NewestAgreed(l *Level) format.Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.voted.Load() {
		return l.agreed.newest
	}
	return l.newest
}

// Present lists the epochs whose manifests can be read in this rank's directory of a level, newest first, and at most
// as many as the keep rules count.
func (c *Catalog) Present(ctx context.Context, l *Level) ([]format.Epoch, error) {
	look, err := NewLook(l.Level)
	if err != nil {
		return nil, err
	}
	var out []format.Epoch
	for _, e := range look.epochs {
		if len(out) == max(l.Keep, maxPending) || ctx.Err() != nil {
			break
		}
		_, err := look.ReadManifest(e)
		switch {
		case err == nil:
			out = append(out, e)
		case !errors.Is(err, level.ErrNotCommitted) && !level.OfOtherRun(err):
			c.Log.Warn("holdfast: epoch skipped: its manifest cannot be read", "epoch", e, "level", l.Name(), "err",
				err)
		}
	}
	if c.looksAlone(l) {
		l.keepLook(look)
	}
	return out, ctx.Err()
}
