package persist

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Repair makes the restored epoch as safe as it was meant to be, behind the
// program: ranks may have been placed elsewhere, nodes lost, and the run before
// may have died in the middle of copying. New epochs are copied to the outer levels
// after it. Called by the main thread on all ranks.
func (p *Persister) Repair(e storage.Epoch) {
	_, end := p.begin(e)
	free := func() {}
	if p.Rank == 0 {
		free = p.pace.occupy(e)
	}
	release := p.Store.Retain(p.ctx, e) // new epochs are committed meanwhile
	p.Go(func() {
		defer free()
		defer end()
		defer release()
		if err := errors.Join(p.rebuild(e), p.finishCopies()); err != nil && p.ctx.Err() == nil {
			p.Log.Warn("holdfast: cannot repair all levels after the restart", "epoch", e, "error", err)
		}
	})
}

// rebuild restores an epoch's presence on this rank's node and its redundancy.
func (p *Persister) rebuild(e storage.Epoch) error {
	for _, level := range p.Levels {
		if storage.TraitsOf(level).Shared {
			continue
		}
		end := p.Begin(Step{Name: Rebuild, Epoch: e, Level: level})
		err := p.Operations.Run(p.ctx, "rebuild", level, func(ctx context.Context) error {
			return p.Store.Rebuild(ctx, e, level)
		})
		end(0, 0, err)
		if errors.Is(err, storage.ErrNotCommitted) {
			err = nil // no directory of this level knows the epoch any more: it lives further out
		}
		// The next level builds on this one, so all must be through it.
		blobs, gerr := p.Allgather(e, "repair "+level, outcome.Encode(err))
		if gerr != nil {
			return errors.Join(err, gerr)
		}
		if err := outcome.Decode(fmt.Sprintf("rebuild epoch %d at level %s", e, level), blobs, err); err != nil {
			return err
		}
	}
	return nil
}

// finishCopies copies to the global level the newest epoch that the previous run had committed locally and not copied,
// or an older one if that is lost.
func (p *Persister) finishCopies() error {
	if len(p.Levels) < 2 {
		return nil
	}
	last := p.Levels[len(p.Levels)-1]
	if !storage.TraitsOf(last).Shared {
		return nil
	}
	pending, err := p.Store.Pending(p.ctx, p.Levels[0], last)
	blobs, gerr := p.Allgather(0, "repair pending", vote.EncodeCandidates(pending, nil, err))
	if gerr != nil {
		return errors.Join(err, gerr)
	}
	per, _, err := vote.DecodeCandidates("look for epochs to copy", blobs, err)
	if err != nil {
		return err
	}
	var failed error
	for _, k := range slices.Backward(vote.Common(per)) {
		e := k.Epoch
		p.Store.Choose(e, k.ID)
		if err := p.copyOut(p.ctx, e, last, nil); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		p.Note.end(e)
		if p.Rank == 0 {
			p.Log.Info("holdfast: copied an epoch that the previous run had not", "epoch", e, "level",
				last)
		}
		break
	}
	return failed
}
