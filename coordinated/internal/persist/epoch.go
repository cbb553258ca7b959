package persist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Captured has the data of an epoch on this rank when the program continues.
type Captured struct {
	Epoch    storage.Epoch
	Snapshot *capture.Snapshot // nil: nothing was captured
	Err      error             // why
	Final    bool              // the program is to stop after it
	// All delivers the outcome of waiting for the captures of all ranks; no rank votes before.
	All <-chan error
}

// ErrPutOff is the reason for which nothing was captured at a cut that is not used: messages are in flight, and another
// cut follows. It is no failure, and is passed to Freed only.
var ErrPutOff = errors.New("put off: messages are in flight")

// Epoch is an epoch on its way to the levels, for the main thread to wait for.
type Epoch struct {
	Put    chan struct{} // closed when the captured bytes are no longer needed
	Over   chan struct{} // closed when the epoch is at all levels that it goes to, or will not be
	Levels []string      // at which it is committed, nearest first; read after Over
	Err    error         // why it is not at all levels; read after Over

	p     *Persister
	c     Captured
	lease *capture.Lease
	turn  *turn
	start time.Time
}

// Persist takes a captured epoch on in the background. A rank whose capture failed takes
// part in the votes with its error. It is called in the same order of epochs on all ranks.
func (p *Persister) Persist(c Captured) *Epoch {
	x := &Epoch{Put: make(chan struct{}), Over: make(chan struct{}), p: p, c: c, start: time.Now()}
	var end func()
	x.turn, end = p.begin(c.Epoch)
	p.State.Remember(c.Epoch, c.Snapshot)
	release := p.Store.Retain(p.ctx, c.Epoch) // ranks copy from and to each other's directories
	p.Go(func() {
		defer close(x.Over)
		defer end()
		defer release()
		x.lease = p.State.Lease(p.ctx, c.Snapshot)
		err := x.run()
		if x.Err = errors.Join(err, x.lease.End()); x.Err != nil && !errors.Is(x.Err, ErrPutOff) {
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

// first writes the epoch to the first level or, if that fails, directly to the global one. It frees the captured bytes
// unless further levels can be written from them. from is the place of the level that has it; failed is the error of
// the first level, and err is set if no level has it.
func (x *Epoch) first() (from int, failed, err error) {
	p, s, own := x.p, x.c.Snapshot, x.c.Err
	last := len(p.Levels) - 1
	free := sync.OnceFunc(func() {
		if err != nil || from == last || !s.InMemory() {
			err = errors.Join(err, x.lease.End())
		} else {
			x.lease.Done()
		}
		close(x.Put)
	})
	defer free()
	all := sync.OnceValue(func() error { return <-x.c.All })
	bases := []int{0} // that an epoch can come to from memory
	if last > 0 && storage.TraitsOf(p.Levels[last]).Shared {
		bases = append(bases, last)
	}
	own = errors.Join(own, x.arrive())
	for n := range bases {
		from = bases[n]
		var info storage.ShardInfo
		info, err = x.write(p.Levels[from], own)
		if n == len(bases)-1 || s == nil || s.Live { // live bytes must be released now
			free()
		}
		if s != nil && s.Live {
			own = errors.Join(own, errLive)
		}
		p.Phase("put")
		err = p.commit(x.c.Epoch, p.Levels[from], []storage.ShardInfo{info}, errors.Join(err, all()))
		failed = errors.Join(failed, err)
		if err == nil || p.ctx.Err() != nil || vote.NothingToWrite(err) {
			break
		}
	}
	free()
	if p.Rank == 0 && errors.Is(err, ErrPutOff) {
		p.pace.none(x.c.Epoch)
	}
	p.Phase("committed")
	p.Freed(x.c.Epoch, err)
	if err != nil {
		return from, nil, failed
	}
	if p.Rank == 0 {
		p.pace.at(from, x.c.Epoch, x.start)
	}
	x.committed(p.Levels[from], 0)
	for _, level := range p.Levels[:from] {
		if failed == nil {
			p.Skipped(x.c.Epoch, level, 0)
		}
	}
	return from, failed, nil
}

// arrive waits for bytes that the program brings to captured memory while it computes.
func (x *Epoch) arrive() error {
	p := x.p
	_, err := runWatched(p.ctx, p.Operations, "wait for device memory to arrive", p.Levels[0], x.lease, func(
		ctx context.Context) (struct{}, error) {
		return struct{}{}, x.c.Snapshot.Arrive(ctx)
	})
	return err
}

// errLive is why an epoch that the first level refused does not go to another.
var errLive = errors.New("the pool had no room for the captured state, and the program has continued")

// write writes the captured bytes to a level; own is an error of the capture.
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
	switch {
	case err == nil:
		s.Written(x.c.Epoch, info.Digest)
	case errors.Is(err, storage.ErrClaim):
		s.Distrust()
	}
	return info, err
}

// outer copies the epoch to the levels beyond the one that has it, if it is due there and no newer one takes its place.
// A level that fails does not keep it from those beyond: without enough nodes for redundancy the global level is all
// there is against the next death. The same holds for a final epoch without time for a level.
func (x *Epoch) outer(from int) error {
	var failed error
	for i := from + 1; i < len(x.p.Levels); i++ {
		arrived := time.Now()
		d, err := x.enter(i)
		if err != nil {
			return errors.Join(failed, err)
		}
		if !d.Go {
			x.turn.pass(i)
			if x.p.ctx.Err() == nil {
				x.p.Skipped(x.c.Epoch, x.p.Levels[i], d.For)
			}
			continue
		}
		end, err := x.goTo(i, d.After, arrived)
		x.leave(i, err == nil)
		failed = errors.Join(failed, err)
		if end {
			return failed
		}
	}
	return failed
}

// goTo copies the epoch to the i-th level, at which it has arrived, after the previous epoch. end reports that it goes
// to no further level.
func (x *Epoch) goTo(i int, after storage.Epoch, arrived time.Time) (end bool, err error) {
	p, level := x.p, x.p.Levels[i]
	behind := x.await(i, after)
	waited := time.Since(arrived)
	ctx, cancel, err := x.timeFor(i, behind)
	if err != nil {
		return !errors.As(err, new(*GraceError)), err
	}
	err = p.copyOut(ctx, x.c.Epoch, level, x.lease)
	yields := x.turn.yielded()
	at, limited := ctx.Deadline() // of a final epoch: much the same on all ranks
	outOfTime := limited && time.Until(at) < lateGrace && p.ctx.Err() == nil && !yields
	cancel()
	switch {
	case err != nil && p.ctx.Err() != nil:
		return true, err
	case err != nil && outOfTime: // on some ranks only: all go on, and agree on the next level
		left, _ := p.End.Left()
		return false, &GraceError{Epoch: x.c.Epoch, Levels: x.Levels, Level: level, Left: left, Err: err}
	case err != nil && yields: // on some ranks sooner than on others: all go on
		return false, fmt.Errorf("%w: %w", ErrYields, err)
	case err != nil:
		return false, err
	}
	p.Phase("copied")
	x.committed(level, waited)
	return false, nil
}

// committed reports that the epoch is at a level, and removes epochs that are superfluous there now. waited is the time
// that it waited for the level.
func (x *Epoch) committed(level string, waited time.Duration) {
	p := x.p
	x.Levels = append(x.Levels, level)
	p.Committed(x.c.Epoch, level, time.Since(x.start), waited)
	if !p.started.Swap(true) {
		// It is committed, though a rank may have been lost meanwhile, which ends p.ctx.
		err := p.Store.RecordHistory(context.WithoutCancel(p.ctx), x.c.Epoch, level)
		if err != nil && !errors.Is(err, storage.ErrClosed) { // if it is closed, the next start of the job records it
			p.Log.Warn("holdfast: cannot record that the job has checkpoints", "error", err)
		}
	}
	if storage.TraitsOf(level).Shared {
		p.Note.end(x.c.Epoch)
	}
	if p.Rank == 0 && p.Keep != (Every{}) && storage.TraitsOf(level).Shared {
		err := p.Operations.Run(p.ctx, "keep", level, func(ctx context.Context) error {
			return p.Store.PinByRule(ctx, x.c.Epoch, level, p.Keep.Epochs, p.Keep.Time)
		})
		if err != nil {
			p.Log.Warn("holdfast: cannot mark an epoch for keep_every", "epoch", x.c.Epoch, "error", err)
		}
	}
	removed, err := runWatched(p.ctx, p.Operations, "prune after the commit", level, nil, func(
		ctx context.Context) ([]storage.Epoch, error) {
		return p.Store.Prune(ctx, p.toPrune(level)...)
	})
	if err != nil && !errors.Is(err, storage.ErrClosed) { // closed: the rank has given up meanwhile
		p.Log.Warn("holdfast: cannot remove old epochs", "error", err)
	} else if len(removed) > 0 {
		p.Log.Debug("holdfast: pruned", "epochs", fmt.Sprint(removed))
	}
}

// toPrune lists the levels at which a commit at one makes epochs superfluous: not one that all ranks share, unless that
// is it, since looking there costs all.
func (p *Persister) toPrune(at string) (out []string) {
	for _, l := range storage.LevelNames() {
		if l == at || !storage.TraitsOf(l).Shared {
			out = append(out, l)
		}
	}
	return out
}

// ErrEnded is the reason for which no checkpoint is taken of a program that has ended: all its ranks are behind their
// last point, and a start would do one step too many. For a program in another process one rank is enough, since all
// reach equally many points.
var ErrEnded = errors.New("no checkpoint: the program has ended, and stands behind its last point")

// Ended reports whether an epoch failed for no other reason than ErrEnded, on one rank or more.
func Ended(err error) bool {
	var failed *outcome.RanksError
	return errors.As(err, &failed) && !slices.ContainsFunc(failed.Failed, func(f outcome.RankFailure) bool {
		return f.Text != ErrEnded.Error()
	})
}

// complain logs at rank 0 that the epoch is missing at levels.
func (x *Epoch) complain() {
	log, e := x.p.Log, x.c.Epoch
	var late *GraceError
	switch {
	case x.p.Rank != 0:
	case Ended(x.Err):
		log.Info("holdfast: "+ErrEnded.Error(), "epoch", e)
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
