package persist

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Captured is what there is of an epoch on this rank when the program continues.
type Captured struct {
	Epoch    storage.Epoch
	Snapshot *capture.Snapshot // nil: there is none
	Err      error             // why
	Final    bool              // the program is to stop after it
	// All delivers what came of waiting for the captures of all ranks; before that nobody
	// votes.
	All <-chan error
}

// Epoch is an epoch on its way to the levels: what the main thread may wait for.
type Epoch struct {
	Put    chan struct{} // closed when the captured bytes are no longer needed
	Over   chan struct{} // closed when the epoch is at all levels, or will not be
	Levels []string      // at which it is committed, nearest first; read after Over
	Err    error         // why it is not at all levels; read after Over

	p            *Persister
	c            Captured
	lease        *capture.Lease
	before, turn *turn
	start        time.Time
}

// Persist takes a captured epoch on in the background. A rank whose capture failed takes
// part in the votes with its error. It is called in the same order of epochs on all ranks.
func (p *Persister) Persist(c Captured) *Epoch {
	x := &Epoch{Put: make(chan struct{}), Over: make(chan struct{}), p: p, c: c, start: time.Now()}
	x.before, x.turn = p.nextTurn()
	release := p.Store.Retain(p.ctx, c.Epoch) // ranks copy from and to each other's directories
	p.Go(func() {
		defer close(x.Over)
		defer x.turn.end()
		defer release()
		x.lease = p.State.Lease(p.ctx, c.Snapshot)
		err := x.run()
		if x.Err = errors.Join(err, x.lease.End()); x.Err != nil {
			p.Failed(c.Epoch, x.Err)
			x.complain()
		}
	})
	return x
}

// run is the way of an epoch: put, vote and commit at the first level, then copy, vote and
// commit at each one further out. A final epoch goes only as far as there is time.
func (x *Epoch) run() error {
	from, failed, err := x.first()
	if err == nil && x.c.Final && from+1 < len(x.p.Levels) {
		x.p.Note.write(x.c.Epoch)
		err = x.p.learnEnd(x.c.Epoch)
	}
	if err == nil {
		err = x.outer(from)
	}
	return errors.Join(failed, err)
}

// first brings the epoch to the first level, or where that fails straight to the global
// one, and frees the captured bytes unless the further levels can have them from there.
// from is the place of the level that has it; failed is why the first does not, and err why
// none does.
func (x *Epoch) first() (from int, failed, err error) {
	p, s, own := x.p, x.c.Snapshot, x.c.Err
	free := sync.OnceFunc(func() {
		if err != nil || from == len(p.Levels)-1 || !s.InMemory() {
			err = errors.Join(err, x.lease.End())
		} else {
			x.lease.Done()
		}
		close(x.Put)
	})
	all := sync.OnceValue(func() error { return <-x.c.All })
	bases := []int{0} // that an epoch can come to from memory
	if last := len(p.Levels) - 1; last > 0 && storage.TraitsOf(p.Levels[last]).Shared {
		bases = append(bases, last)
	}
	for n := range bases {
		from = bases[n]
		var info storage.ShardInfo
		info, err = x.write(p.Levels[from], own)
		if n == len(bases)-1 || s == nil || s.Live { // what is live is to be let go now
			free()
		}
		if s != nil && s.Live {
			own = errors.Join(own, errLive)
		}
		p.Phase("put")
		err = p.commit(x.c.Epoch, p.Levels[from], []storage.ShardInfo{info}, errors.Join(err, all()))
		if err == nil || p.ctx.Err() != nil || vote.NothingToWrite(err) {
			break
		}
		failed = errors.Join(failed, err)
	}
	free()
	p.Phase("committed")
	p.Freed(x.c.Epoch, err)
	if err != nil {
		return from, nil, errors.Join(failed, err)
	}
	x.committed(p.Levels[from])
	return from, failed, nil
}

// errLive is why an epoch that the first level refused does not go to another.
var errLive = errors.New("the pool had no room for the captured state, and the program has continued")

// write writes the captured bytes to a level; own is why there are none.
func (x *Epoch) write(level string, own error) (info storage.ShardInfo, err error) {
	if own != nil {
		return info, vote.Uncaptured(own)
	}
	p, s := x.p, x.c.Snapshot
	end := p.Begin(Step{Name: Write, Epoch: x.c.Epoch, Level: level, Bytes: s.Bytes})
	info, err = runWatched(p.ctx, p.Operations, "write", level, x.lease, func(
		ctx context.Context) (storage.ShardInfo, error) {
		return p.Store.Put(ctx, x.c.Epoch, level, p.Operations.counted(level, s.Sections))
	})
	end(info.Bytes, info.Stored, err)
	p.State.PinUsed()
	return info, err
}

// outer copies the epoch to the levels beyond the one that has it. One that fails does not
// keep it from those beyond: redundancy cannot be had where too few nodes are left, and
// then the global level is all there is against the next death. Likewise for a final one
// that has no time for a level.
func (x *Epoch) outer(from int) error {
	p := x.p
	var failed error
	for i, level := range p.Levels {
		x.turn.pass(max(i-1, 0))
		if i <= from {
			continue
		}
		behind := x.await(i) // epochs reach each level in order
		ctx, cancel, err := x.timeFor(i, behind)
		var late *GraceError
		if errors.As(err, &late) {
			failed = errors.Join(failed, err)
			continue
		}
		if err != nil {
			return errors.Join(failed, err)
		}
		err = p.copyOut(ctx, x.c.Epoch, level, x.lease)
		yields := x.turn.yielded()
		end, limited := ctx.Deadline() // of a final epoch: much the same on all ranks
		outOfTime := limited && time.Until(end) < lateGrace && p.ctx.Err() == nil && !yields
		cancel()
		switch {
		case err != nil && p.ctx.Err() != nil:
			return errors.Join(failed, err)
		case err != nil:
			if outOfTime { // on some ranks only: all go on, and agree on the next level
				left, _ := p.End.Left()
				err = &GraceError{Epoch: x.c.Epoch, Levels: x.Levels, Level: level, Left: left, Err: err}
			}
			if yields { // on some ranks sooner than on others: all go on likewise
				err = fmt.Errorf("%w: %w", ErrYields, err)
			}
			failed = errors.Join(failed, err)
			continue
		}
		p.Phase("copied")
		x.committed(level)
	}
	return failed
}

// committed says that the epoch is at a level, and removes what it makes superfluous there.
func (x *Epoch) committed(level string) {
	p := x.p
	x.Levels = append(x.Levels, level)
	p.Committed(x.c.Epoch, level, time.Since(x.start))
	if !p.begun.Swap(true) {
		if err := p.Store.NoteBegun(p.ctx, x.c.Epoch, level); err != nil {
			p.Log.Warn("holdfast: cannot record that the job has checkpoints", "error", err)
		}
	}
	if storage.TraitsOf(level).Shared {
		p.Note.end(x.c.Epoch)
	}
	removed, err := runWatched(p.ctx, p.Operations, "prune after the commit", level, nil, p.Store.Prune)
	if err != nil {
		p.Log.Warn("holdfast: cannot remove old epochs", "error", err)
	} else if len(removed) > 0 {
		p.Log.Debug("holdfast: pruned", "epochs", fmt.Sprint(removed))
	}
}

// complain says at rank 0 that the epoch is not where it should be.
func (x *Epoch) complain() {
	log, e := x.p.Log, x.c.Epoch
	var late *GraceError
	switch {
	case x.p.Rank != 0:
	case errors.As(x.Err, &late):
		log.Warn("holdfast: final checkpoint incomplete: "+late.Error(), "epoch", e)
	case x.p.ctx.Err() != nil:
	case errors.Is(x.Err, ErrYields):
		log.Warn("holdfast: copying stopped in favour of the final checkpoint", "epoch", e)
	case len(x.Levels) == 0:
		log.Error("holdfast: checkpoint failed; older epochs are kept", "epoch", e, "error", x.Err)
	default:
		log.Error("holdfast: checkpoint failed at a level, it is at "+strings.Join(x.Levels, ", ")+" only", "epoch", e,
			"error", x.Err)
	}
}
