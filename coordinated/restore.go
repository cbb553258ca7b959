package coordinated

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outside"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/watch"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Restore reads the newest epoch that all ranks can read into everything protected, and reports
// whether there was one: false means a first start. It is collective, called once, after the last
// Protect and before the first Point. Restore skips an epoch after two crashes within a minute of
// its restore. If there is no other epoch it retries it, up to six times in all. Options.Epoch
// restores a skipped epoch nevertheless. A job that ended normally and is started again also
// continues from its last epoch. Every byte is verified while it is read; a damaged shard makes all
// ranks fall back to the previous epoch, and the log has the reason. It also warns of a newer committed
// epoch that some rank cannot read from any level.
//
// The device programs of the checkpoint are built while it is read, so a program
// that asks for its gpustate programs and kernels after Restore restarts sooner.
//
// An epoch takes effect when all ranks have read their shards. A failed attempt leaves no trace in protected memory,
// devices, windows, requests and mailboxes. The program's own UnmarshalBinary and LoadFrom run only after all ranks
// agree that all bytes are intact. To be able to undo, Restore saves the previous contents in the memory of the
// captures. If Options.MaxPool leaves no room for that, Restore verifies all bytes first and reads them after the vote.
//
// ctx bounds reading, not the wait for other ranks: if it ends on one rank, Restore fails on all. Errors are the same
// on all ranks. *NoCommonEpochError: checkpoints exist, but the ranks have none in common. *LostEpochsError: there were
// checkpoints, and none is found. *SkippedEpochsError: all were left out. An error that names an array: the ranks'
// declarations contradict each other. *RestoreError, with the reasons: all checkpoints failed to load, or a device was
// lost, or the newest does not hold the protected state of this program. In the last case no older one is tried, since
// the program differs. Protected state is unchanged, except for the names in the error; the program should end.
func (c *Checkpointer) Restore(ctx context.Context) (bool, error) {
	if c.main.Closed.Load() {
		return false, ErrClosed
	}
	if c.main.Restored.Swap(true) {
		return false, fmt.Errorf("Restore was called twice; a program restores once")
	}
	if c.off {
		c.main.pointFlags.And(^uint32(pointRestore))
		return false, nil
	}
	start := time.Now()
	c.main.Place()
	_ = c.agent.Library(c.life.ctx, start) // closed: the rest reports it
	c.main.Now(watch.StateRestoring)
	defer func() {
		c.main.Now(watch.StateRunning)
		_ = c.agent.Library(c.life.ctx, time.Time{})
	}()
	end := c.record.events.Span(events.Event{Name: events.Restore})
	l := newStopwatch(start)
	defer func() {
		if c.stats.restoredFrom() != storage.SourceMemory {
			c.freePrevious()
		}
	}()
	epochs, err := c.choose(ctx)
	if derr := c.compareDeclared(); derr != nil {
		end(events.Event{}, derr)
		return false, derr
	}
	l.lap(PartAgree)
	var got loaded
	if err == nil {
		got, err = c.loadNewest(ctx, epochs, l)
	}
	switch {
	case err != nil:
		end(events.Event{}, err)
		c.unrestorable(err)
		return false, err
	case got.Epoch == 0:
		if c.topo.Rank == 0 {
			c.log.Info("holdfast: no checkpoint found; this is a first start", "job", c.opt.Job)
		}
		c.warnUnflushed(0)
		end(events.Event{}, nil)
		c.ready()
		return false, nil
	}
	fetched := time.Since(start)
	end(events.Event{Epoch: uint64(got.Epoch), Level: got.level, Bytes: got.bytes, What: l.String()}, nil)
	c.main.pointFlags.Or(pointFirst)
	c.record.metrics.Restored(uint64(got.Epoch), got.level, got.bytes, time.Since(start))
	c.stats.restore(RestoreStats{Epoch: got.Epoch, Level: got.level, Bytes: got.bytes, Took: time.Since(start),
		Fetch: fetched, Parts: l.parts, FromSource: c.fromSource()})
	c.ready()
	c.restored(got, start)
	return true, nil
}

// loaded is the result of loadNewest; Epoch is 0 if there was nothing to restore.
type loaded struct {
	vote.Candidate
	level string // that this rank has read
	all   string // those that all ranks have read
	bytes int64  // of this rank
}

// loadNewest restores the first of the epochs that loads on all ranks. It returns a *RestoreError if every one fails.
func (c *Checkpointer) loadNewest(ctx context.Context, epochs []vote.Candidate, l *stopwatch) (got loaded, err error) {
	failed := &RestoreError{}
	restoring := c.state.Restore(capture.Callbacks{Mailbox: c.main.endpoint.StageMailbox, Over: l.until,
		Mismatch: func(name, saved, now string) error { return &MismatchError{name, saved, now} }}, c.log)
	defer restoring.Close()
	for i, k := range epochs {
		e := k.Epoch
		c.levels.store.Choose(e, k.ID)
		level, all, bytes, err := c.tryLoad(ctx, k, restoring, l)
		if err == nil {
			return loaded{k, level, all, bytes}, nil
		}
		failed.add(err)
		c.failure("restore", e, err)
		if failed.Length && i > 0 {
			failed.chosen = e
		}
		if failed.Mismatch || failed.stop || c.life.ctx.Err() != nil {
			break
		}
		if c.topo.Rank == 0 && i+1 < len(epochs) {
			c.log.Error("holdfast: epoch not restored; trying an older one", "epoch", e, "error", err)
		}
	}
	if failed.Err != nil {
		return got, failed
	}
	return got, nil
}

// restored logs the restored epoch, and completes its redundancy in the background.
func (c *Checkpointer) restored(got loaded, start time.Time) {
	first, e := c.topo.Rank == 0, got.Epoch
	if first {
		c.log.Info("holdfast: restored", "ranks", c.topo.Size(), "epoch", e, "level", got.all, "bytes", got.bytes,
			"took", time.Since(start).Round(time.Microsecond))
	}
	c.warnUnflushed(e)
	c.surviving()
	if written := c.sizes[got.Candidate]; written == c.topo.Size() {
		c.persist.Repair(e)
	} else if first { // they stay as they are until newer ones replace them
		c.log.Info("holdfast: the epoch is of another number of ranks", "epoch", e, "written_by", written,
			"now", c.topo.Size())
	}
}

// ready lets Points pass, and warms the pool in the background, unless the restored memory is to be freed first.
func (c *Checkpointer) ready() {
	if c.stats.restoredFrom() != storage.SourceMemory {
		c.reserve()
	}
	c.main.Now(watch.StateRunning)
	c.main.pointFlags.And(^uint32(pointRestore))
}

// reserve warms the pool for the state that is protected now. A capture that comes sooner waits for the rest of it.
func (c *Checkpointer) reserve() {
	n := c.state.Bytes()
	c.life.writers.Go(func() { c.state.Reserve(n) })
}

// inRestore reports whether the program has no state yet.
func (c *Checkpointer) inRestore() bool { return c.main.pointFlags.Load()&pointRestore != 0 }

// survivalTime is how long the program has to run after a restore for a later
// death to be no fault of the epoch.
const survivalTime = time.Minute

// surviving clears the epoch of suspicion when the program has run long enough.
func (c *Checkpointer) surviving() {
	if c.topo.Rank != 0 {
		return
	}
	c.life.writers.Go(func() {
		select {
		case <-time.After(survivalTime):
			c.survived()
		case <-c.life.ctx.Done():
		}
	})
}

// survived notes that the program lives after a restore.
func (c *Checkpointer) survived() {
	if err := c.levels.ops.Run(c.life.ctx, "record that the restart survived", c.levels.use[0],
		c.levels.store.NoteSurvival); err != nil &&
		c.life.ctx.Err() == nil {
		c.log.Warn("holdfast: cannot record that the restart survived; its end may count against the epoch", "error",
			err)
	}
}

// choose is common, once: a program in another process may have asked for the saved state before it restores. It comes
// first in Restore, so that ranks that have asked and ranks that have not meet there.
func (c *Checkpointer) choose(ctx context.Context) ([]vote.Candidate, error) {
	if c.chosen == nil {
		epochs, err := c.common(ctx)
		c.chosen = &chosen{epochs, err}
	}
	return c.chosen.epochs, c.chosen.err
}

// chosen has the epochs that all ranks can read, newest first, or the error.
type chosen struct {
	epochs []vote.Candidate
	err    error
}

// common agrees on the epochs that every rank can read, newest first.
func (c *Checkpointer) common(ctx context.Context) ([]vote.Candidate, error) {
	var list []storage.Candidate
	var unreadable []storage.Epoch
	err := c.learn(ctx)
	if err == nil && !c.opt.Fresh {
		list, unreadable, err = c.levels.store.Candidates(ctx)
		if later := (*storage.VersionError)(nil); c.opt.Epoch != 0 && errors.As(err, &later) {
			err = nil // the user has chosen an epoch that this build can read
		}
	}
	for _, k := range list {
		c.sizes[vote.Candidate{Epoch: k.Epoch, ID: k.ID}] = k.Size
	}
	blobs, gerr := c.agent.Allgather(c.life.ctx, 0, agent.StageRestore+"candidates",
		vote.EncodeCandidates(list, unreadable, err))
	if gerr != nil {
		return nil, errors.Join(err, gerr)
	}
	per, flags, err := vote.DecodeCandidates("look for checkpoints", blobs, err)
	if err != nil {
		return nil, err
	}
	both := vote.Common(per)
	if e := c.opt.Epoch; e != 0 {
		only := slices.DeleteFunc(slices.Clone(both), func(k vote.Candidate) bool { return k.Epoch != e })
		if len(only) == 0 {
			return nil, fmt.Errorf("not all ranks can read epoch %d; all can read %v", e, epochsOf(both))
		}
		return only, nil
	}
	if len(both) == 0 && !c.opt.Fresh {
		return nil, c.without(ctx, per, flags)
	}
	if len(both) > 0 && c.topo.Rank == 0 {
		c.sayPassedOver(per, flags, both[0].Epoch)
	}
	return c.leaveOut(both, flags)
}

// sayPassedOver warns of committed epochs newer than the newest that all ranks can read: their work has to be computed
// again.
func (c *Checkpointer) sayPassedOver(per [][]vote.Candidate, flags vote.Flags, newest storage.Epoch) {
	for _, e := range slices.Backward(slices.Sorted(maps.Keys(flags))) {
		if e <= newest {
			return
		}
		var without []int
		for r, list := range per {
			if !slices.ContainsFunc(list, func(k vote.Candidate) bool { return k.Epoch == e }) {
				without = append(without, r)
			}
		}
		why := "rank(s) " + outcome.Ranks(without) + " cannot read it from any level"
		if len(without) == 0 {
			why = "the ranks hold different attempts at it"
		}
		c.log.Warn("holdfast: restoring an epoch older than the newest", "epoch", e, "why", why, "restorable", newest)
	}
}

func epochsOf(list []vote.Candidate) (out []storage.Epoch) {
	for _, k := range list {
		out = append(out, k.Epoch)
	}
	return out
}

// leaveOut puts the epochs after whose restore the program kept dying behind the others. If there are no others they
// are tried again: a person, or the system, may have killed it. The number of tries is bounded, lest a job is requeued
// for ever.
func (c *Checkpointer) leaveOut(epochs []vote.Candidate, flags vote.Flags) ([]vote.Candidate, error) {
	var good, bad, dead []vote.Candidate
	for _, k := range epochs {
		switch {
		case flags[k.Epoch]&vote.IsDeadly != 0:
			dead = append(dead, k)
		case flags[k.Epoch]&vote.IsSkipped != 0:
			bad = append(bad, k)
		default:
			good = append(good, k)
		}
	}
	if len(bad)+len(dead) == 0 {
		return good, nil
	}
	err := &SkippedEpochsError{Epochs: epochsOf(append(slices.Clone(bad), dead...))}
	slices.Sort(err.Epochs)
	slices.Reverse(err.Epochs)
	switch {
	case len(good) == 0 && len(bad) == 0:
		return nil, err
	case c.topo.Rank != 0:
	case len(good) == 0:
		c.log.Warn("holdfast: the program crashed repeatedly after restoring, and there is no other epoch: trying "+
			"once more", "epochs", epochsOf(bad), "within", survivalTime)
	default:
		c.log.Warn("holdfast: restoring an older epoch: "+err.Error(), "epoch", good[0].Epoch)
	}
	if len(good) == 0 {
		return bad, nil
	}
	return good, nil
}

// learn exchanges the holdings of all ranks' directories, so that shards can be read from another node's disk.
// Collective; a rank that cannot look has nothing to offer.
func (c *Checkpointer) learn(ctx context.Context) error {
	mine, err := c.levels.store.Holdings(ctx)
	if err != nil {
		mine = nil
	}
	blobs, gerr := c.agent.Allgather(c.life.ctx, 0, agent.StageRestore+"holdings", mine)
	if gerr != nil {
		return errors.Join(err, gerr)
	}
	for _, b := range blobs {
		if b.Rank == c.topo.Rank || len(b.Data) == 0 {
			continue
		}
		if lerr := c.levels.store.Learn(b.Rank, b.Data); lerr != nil {
			return errors.Join(err, fmt.Errorf("checkpoints of rank %d: %w", b.Rank, lerr))
		}
	}
	return err
}

// unrestorable reports to the supervisor why no epoch was restored, if only the checkpoints are to blame.
func (c *Checkpointer) unrestorable(err error) {
	restore, failed := errors.AsType[*RestoreError](err)
	if !failed && !errors.As(err, new(*NoCommonEpochError)) && !errors.As(err, new(*LostEpochsError)) &&
		!errors.As(err, new(*SkippedEpochsError)) {
		return
	}
	if errors.As(err, new(*LostError)) || errors.Is(err, context.Canceled) || failed && restore.Device {
		return
	}
	c.outside.reporter.Unrestorable(outside.Unrestorable{Why: err.Error(), Nodes: MissingNodes(err),
		Missing: wantsData(err)})
}

// wantsData reports whether a Restore failed because data are missing or damaged where
// it looked: other directories, or another node, may have them.
func wantsData(err error) bool {
	var restore *RestoreError
	return !errors.As(err, new(*SkippedEpochsError)) && !(errors.As(err, &restore) && restore.Mismatch)
}

func noCommon(per [][]vote.Candidate, flags vote.Flags, nodes []string) *NoCommonEpochError {
	err := &NoCommonEpochError{Have: map[int][]storage.Epoch{}, Size: len(per), Nodes: nodes}
	for _, e := range slices.Backward(slices.Sorted(maps.Keys(flags))) {
		if flags[e]&vote.IsUnreadable != 0 {
			err.Unreadable = append(err.Unreadable, e)
		}
	}
	for r, list := range per {
		for _, k := range list {
			err.Have[r] = append(err.Have[r], k.Epoch)
		}
	}
	return err
}
