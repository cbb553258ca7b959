package coordinated

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/arrays"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/storage"
)

// tryLoad loads one epoch on all ranks, or fails on all and leaves no trace. That it
// begins is noted before anything of the program changes, and the note is durable
// before any rank goes on. It returns the level that this rank has read, and those that all have.
func (c *Checkpointer) tryLoad(ctx context.Context, k vote.Candidate, restoring *arrays.Restoring, l *stopwatch) (level,
	all string, bytes int64, err error) {
	durable, e := func() error { return nil }, k.Epoch
	if c.topo.Rank == 0 {
		var noted func() error
		if noted, err = c.levels.store.NoteRestore(ctx, e); err == nil {
			durable = noted
		}
		l.lap(PartNote)
	}
	a := restoring.Attempt()
	var src *shards
	if err == nil {
		if src, bytes, err = c.fetchVerified(ctx, k); err == nil {
			defer src.close()
			l.lap(PartOpen)
		}
	}
	ready, err := c.planned(ctx, src, a, e, err)
	if ready {
		err = a.Read(ctx, src)
		level = src.level
	}
	err = errors.Join(err, durable())
	l.lap(PartNote)
	fallible, votes, err := c.voteLoad(ctx, e, "load", a, level, err)
	l.lap(PartVote)
	if err == nil {
		err = a.Apply(ctx)
	}
	if fallible {
		_, _, err = c.voteLoad(ctx, e, "apply", a, level, err)
		l.lap(PartVote)
	}
	if err == nil {
		a.Finish()
		c.adopt(src)
		return level, levelsRead(votes), bytes, nil
	}
	if uerr := a.Undo(); uerr != nil {
		c.log.Error("holdfast: a failed restore could not be undone completely", "epoch", e, "error", uerr)
	}
	if c.topo.Rank == 0 {
		if err := c.levels.store.WithdrawRestore(c.life.ctx, e); err != nil && c.life.ctx.Err() == nil {
			c.log.Warn("holdfast: cannot record that a restore was given up; the end of this run may count against "+
				"the epoch", "epoch", e, "error", err)
		}
	}
	return "", "", 0, err
}

// adopt lets the first checkpoint of this start refer to the restored shard, if that is known to be good.
func (c *Checkpointer) adopt(src *shards) {
	if src == nil || src.own == nil {
		return
	}
	if !c.levels.store.Adopt(src.own) {
		c.log.Debug("holdfast: the first checkpoint is written whole: it cannot refer to the restored one", "epoch",
			src.epoch, "level", src.level)
	}
}

// fetchVerified is fetch of an epoch that is to be restored: it verifies all bytes in memory, and uses none if any is
// damaged.
func (c *Checkpointer) fetchVerified(ctx context.Context, k vote.Candidate) (src *shards, bytes int64, err error) {
	src, bytes, err = c.fetch(ctx, k)
	if err != nil || src.level != storage.SourceMemory {
		c.freePrevious()
		return src, bytes, err
	}
	verr := src.own.VerifyMemory()
	if verr == nil {
		return src, bytes, nil
	}
	c.log.Warn("holdfast: the memory that the start before has left is damaged; reading a level instead", "epoch",
		k.Epoch, "error", verr)
	c.failure("restore from memory", k.Epoch, verr)
	src.close()
	c.freePrevious()
	return c.fetch(ctx, k)
}

// fetch opens this rank's shard and returns the number of its bytes. An epoch of another number of ranks has none, if
// it can be restored at all.
func (c *Checkpointer) fetch(ctx context.Context, k vote.Candidate) (src *shards, bytes int64, err error) {
	src = &shards{c: c, epoch: k.Epoch, size: c.sizes[k]}
	if src.size == c.topo.Size() {
		if src.own, err = c.levels.store.Fetch(ctx, k.Epoch); err != nil {
			return nil, 0, err
		}
		src.level = src.own.Level()
		for _, s := range src.own.Sections() {
			bytes += s.Size
		}
	} else {
		if err := c.resizable(ctx, src, src.size); err != nil {
			return nil, 0, err
		}
		bytes = c.state.Bytes()
	}
	return src, bytes, nil
}

// closeShard closes a shard. All its bytes were read and verified, and the ranks have voted: an error of this rank
// alone must not cause another attempt.
func (c *Checkpointer) closeShard(sh *storage.Shard, e storage.Epoch) {
	if err := sh.Close(); err != nil {
		c.log.Warn("holdfast: closing a shard after reading it", "epoch", e, "error", err)
	}
}

// The first byte of a vote on an attempt.
const (
	voteFailed    = 1 << 0 // the text of the error follows
	voteFallible  = 1 << 1 // Apply may fail: vote again after it
	voteMismatch  = 1 << 2 // the error is that the program protects something else
	voteUndefined = 1 << 3 // undo cannot restore everything: names follow
	voteStop      = 1 << 4 // nor would an older epoch, or there is no time for one
	voteItems     = 1 << 5 // the owners of items follow, for each set
	voteDevice    = 1 << 6 // the error is a device's
	voteLength    = 1 << 7 // arrays with other numbers of elements are all that is wrong
)

// voteLoad agrees on whether a step of a load succeeded on all ranks. fallible reports that some rank's Apply may fail,
// from each rank's read.
func (c *Checkpointer) voteLoad(ctx context.Context, e storage.Epoch, step string, a *arrays.Attempt, level string,
	own error) (fallible bool, from []string, err error) {
	a.Stop = a.Stop || ctx.Err() != nil
	blobs, gerr := c.agent.Allgather(c.life.ctx, cut.Epoch(e), agent.StageRestore+step, ballot(a, level, own))
	if gerr != nil {
		return false, nil, errors.Join(own, gerr)
	}
	var all byte
	lengths := true // are all that is wrong
	var items arrays.AssignedVotes
	failed := &RestoreError{}
	texts := make([]string, len(blobs))
	for i, b := range blobs {
		if len(b.Data) == 0 {
			texts[i], lengths = "no vote", false
			continue
		}
		flags, rest := b.Data[0], string(b.Data[1:])
		all |= flags
		if flags&voteUndefined != 0 {
			var names string
			names, rest, _ = strings.Cut(rest, "\n\n")
			failed.Undefined = append(failed.Undefined, strings.Split(names, "\n")...)
		}
		if flags&voteItems != 0 {
			rest = items.Add(b.Rank, rest)
		}
		if flags&voteFailed != 0 {
			lengths = lengths && flags&voteLength != 0
			texts[i] = cmp.Or(rest, "unknown error")
		}
		from = append(from, rest)
	}
	failed.Err = outcome.Failed(fmt.Sprintf("restore epoch %d", e), texts, own)
	if failed.Err == nil && items.Err != nil {
		failed.Err = fmt.Errorf("restore epoch %d: %w", e, items.Err)
		all |= voteMismatch
	}
	if failed.Err == nil {
		return all&voteFallible != 0, from, nil
	}
	slices.Sort(failed.Undefined)
	failed.Undefined = slices.Compact(failed.Undefined)
	failed.Mismatch, failed.Device, failed.stop = all&voteMismatch != 0, all&voteDevice != 0, all&voteStop != 0
	failed.Length = all&voteLength != 0 && lengths
	return false, nil, failed
}

// levelsRead names the levels with the ranks that have read them: only the level if all have read the same.
func levelsRead(from []string) string {
	var levels []string
	ranks := map[string][]int{}
	for r, level := range from {
		if ranks[level] == nil {
			levels = append(levels, level)
		}
		ranks[level] = append(ranks[level], r)
	}
	if len(levels) == 1 {
		return levels[0]
	}
	for i, level := range levels {
		levels[i] = fmt.Sprintf("%s (rank %s)", level, outcome.Ranks(ranks[level]))
	}
	return strings.Join(levels, ", ")
}

// ballot returns a vote; own is why it is no. A yes ends with the level that was read.
func ballot(a *arrays.Attempt, level string, own error) []byte {
	b := []byte{0}
	if a.Fallible {
		b[0] |= voteFallible
	}
	if len(a.Undefined) > 0 {
		b[0] |= voteUndefined
		b = append(b, strings.Join(a.Undefined, "\n")+"\n\n"...)
	}
	if a.Stop {
		b[0] |= voteStop
	}
	if own == nil && len(a.Assigned) > 0 {
		b[0] |= voteItems
		b = arrays.AppendAssigned(b, a.Assigned)
	}
	if own == nil {
		return append(b, level...)
	}
	b[0] |= voteFailed
	var other *MismatchError
	var count *CountError
	if errors.As(own, &other) || errors.Is(own, gpustate.ErrConflict) || arrays.IsUnfit(own) ||
		errors.As(own, &count) && !count.another() {
		b[0] |= voteMismatch
	}
	if errors.As(own, new(*capture.LengthError)) {
		b[0] |= voteMismatch
		if other == nil {
			b[0] |= voteLength
		}
	}
	if ofDevice(own) {
		b[0] |= voteDevice
	}
	if errors.Is(own, gpustate.ErrDeviceLost) { // permanently
		b[0] |= voteStop
	}
	return append(b, own.Error()...)
}

// ofDevice reports whether a shard was not restored because of the device that it was to go to.
func ofDevice(err error) bool {
	var build *gpustate.BuildError
	return errors.As(err, &build) || slices.ContainsFunc([]error{gpustate.ErrDeviceLost, gpustate.ErrOutOfMemory,
		gpustate.ErrLimit, gpustate.ErrUnsupported, gpustate.ErrFP64, gpustate.ErrNoSource},
		func(of error) bool { return errors.Is(err, of) })
}

// RestorePart is one part of a restore, as far as this rank waited for it.
type RestorePart struct {
	Name string
	Took time.Duration
}

// The parts of a restore, in their order.
const (
	PartAgree    = "agree on the epoch" // by the directories of all ranks, over the control plane
	PartOpen     = "open the shard"     // its manifest and index
	PartMemory   = capture.PartMemory   // protected host memory, read and verified
	PartObjects  = capture.PartObjects  // the device stopped, objects, queues and staging memory made
	PartContents = capture.PartContents // of device memory, read, verified and uploaded
	PartDeviceUp = capture.PartDeviceUp // from the last byte read: uploads, programs, arguments
	PartNote     = "note of the trial"  // rank 0: that this restore begins, until that is durable
	PartVote     = "wait for all ranks" // until all have read their shards
)

// stopwatch takes the times of the parts of a restore. An epoch that turned out bad is
// in them, too.
type stopwatch struct {
	last  time.Time
	parts []RestorePart
}

func newStopwatch(start time.Time) *stopwatch { return &stopwatch{last: start} }

// lap ends this part, which began at the last call.
func (l *stopwatch) lap(name string) { l.until(time.Now(), name) }

// until is lap for an earlier time; one before the last call counts nothing.
func (l *stopwatch) until(t time.Time, name string) {
	i := slices.IndexFunc(l.parts, func(p RestorePart) bool { return p.Name == name })
	if i < 0 {
		i = len(l.parts)
		l.parts = append(l.parts, RestorePart{Name: name})
	}
	if d := t.Sub(l.last); d > 0 {
		l.parts[i].Took += d
		l.last = t
	}
}

// String returns one line for the event log.
func (l *stopwatch) String() string {
	var out []string
	for _, p := range l.parts {
		out = append(out, fmt.Sprintf("%s %v", p.Name, p.Took.Round(time.Microsecond)))
	}
	return strings.Join(out, ", ")
}
