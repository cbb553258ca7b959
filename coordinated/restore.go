package coordinated

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Restore reads the newest epoch that all ranks can read into everything
// protected, and reports whether there was one: false means a first start. It
// is collective, called once, after the last Protect and before the first
// Point. An epoch right after whose restoring the program died twice is left out,
// unless Options.Epoch names it. Every byte is verified while it is read; a shard that turns out bad
// makes all ranks fall back to the epoch before, and the log says why; it warns too
// where a newer epoch was committed that some rank can have from nowhere.
//
// The device programs of the checkpoint are built while it is read, so a program
// that asks for its gpustate programs and kernels after Restore restarts sooner.
//
// Errors are the same on all ranks: *NoCommonEpochError when checkpoints exist
// but none for all, *PoisonedError when all were left out, *RanksError with the reasons when all of them failed to
// load. Protected state is undefined then; the program should end.
func (c *Checkpointer) Restore(ctx context.Context) (bool, error) {
	if c.closed.Load() {
		return false, ErrClosed
	}
	if c.restored.Swap(true) {
		return false, fmt.Errorf("coordinated: Restore was called before; a program restores once")
	}
	start := time.Now()
	c.now(stateRestoring)
	end := c.events.Span(events.Event{Name: events.Restore})
	l := newLaps(start)
	epochs, err := c.common(ctx)
	l.lap(PartAgree)
	if err != nil {
		var none *NoCommonEpochError
		var poisoned *PoisonedError
		if errors.As(err, &none) || errors.As(err, &poisoned) {
			c.reporter.unrestorable(err)
		}
		end(ended(events.Event{}, err))
		return false, err
	}
	var errs []error
	for _, e := range epochs {
		level, bytes, err := c.tryLoad(ctx, e, l)
		if err == nil {
			fetched := time.Since(start)
			end(events.Event{Epoch: uint64(e), Level: level, Bytes: bytes, What: l.String()})
			c.ready()
			c.metrics.Restored(uint64(e), time.Since(start))
			c.stats.restore(RestoreStats{Epoch: e, Level: level, Bytes: bytes, Took: time.Since(start), Fetch: fetched, Parts: l.parts})
			c.log.Info("holdfast: restored", "epoch", e, "level", level, "bytes", bytes, "took", time.Since(start).Round(time.Microsecond))
			c.sayStayed(e)
			c.surviving()
			c.repair(e)
			return true, nil
		}
		errs = append(errs, err)
		c.failure("restore", e, err)
		if c.world.Rank() == 0 {
			c.log.Error("holdfast: epoch not restorable, trying an older one", "epoch", e, "error", err)
		}
	}
	if len(errs) > 0 {
		end(ended(events.Event{}, errors.Join(errs...)))
		err := fmt.Errorf("coordinated: no epoch could be restored; run 'holdfast verify' on the directories, or start anew with HOLDFAST_FRESH=1: %w", errors.Join(errs...))
		c.reporter.unrestorable(err)
		return false, err
	}
	if c.world.Rank() == 0 {
		c.log.Info("holdfast: no checkpoint found, first start", "job", c.opt.Job)
	}
	c.sayStayed(0)
	end(events.Event{})
	c.ready()
	return false, nil
}

// ready opens the gate, and warms the pool for what is protected now behind the
// program. A capture that comes sooner waits for the rest of it.
func (c *Checkpointer) ready() {
	n := c.state.bytes()
	c.writers.Go(func() { c.pool.reserve(n) })
	c.now(stateRunning)
	c.gate.And(^uint32(gateRestore))
}

// survivalTime is how long the program has to run after a restore for a later
// death to be no fault of the epoch.
const survivalTime = time.Minute

// surviving clears the epoch of suspicion when the program has run for a while.
func (c *Checkpointer) surviving() {
	if c.world.Rank() != 0 {
		return
	}
	c.writers.Go(func() {
		t := time.NewTimer(survivalTime)
		defer t.Stop()
		select {
		case <-t.C:
			c.survived()
		case <-c.ctx.Done():
		}
	})
}

// survived notes that the program lives after a restore.
func (c *Checkpointer) survived() {
	if err := c.store.RestoreSurvived(c.ctx); err != nil && c.ctx.Err() == nil {
		c.log.Warn("holdfast: note that the restart lives", "error", err)
	}
}

// common agrees on the epochs that every rank can read, newest first.
func (c *Checkpointer) common(ctx context.Context) ([]storage.Epoch, error) {
	var list []storage.Candidate
	var unreadable []storage.Epoch
	err := c.learn(ctx)
	if err == nil && !c.opt.Fresh {
		list, unreadable, err = c.store.Candidates(ctx)
	}
	blobs, gerr := c.allgather(ctx, 0, stageRestore+"candidates", encodeCandidates(list, unreadable, err))
	if gerr != nil {
		return nil, errors.Join(err, gerr)
	}
	per, flags, err := decodeCandidates("look for checkpoints", blobs, err)
	if err != nil {
		return nil, err
	}
	both := intersect(per)
	if e := c.opt.Epoch; e != 0 {
		if !slices.Contains(both, e) {
			return nil, fmt.Errorf("coordinated: epoch %d is not there for all ranks; they have in common %v", e, both)
		}
		return []storage.Epoch{e}, nil
	}
	if len(both) == 0 && (anyOf(per) || flags.has(isUnreadable)) {
		return nil, noCommon(per, flags)
	}
	if len(both) > 0 && c.world.Rank() == 0 {
		c.sayPassedOver(per, flags, both[0])
	}
	return c.leaveOut(both, flags)
}

// sayPassedOver warns of committed epochs newer than the newest that all ranks
// can read: what was computed up to them has to be computed again.
func (c *Checkpointer) sayPassedOver(per [][]candidate, flags epochFlags, newest storage.Epoch) {
	var newer []storage.Epoch
	for e := range flags {
		if e > newest {
			newer = append(newer, e)
		}
	}
	slices.Sort(newer)
	for _, e := range slices.Backward(newer) {
		var without []int
		for r, list := range per {
			if !slices.ContainsFunc(list, func(k candidate) bool { return k.epoch == e }) {
				without = append(without, r)
			}
		}
		why := "rank(s) " + ranks(without) + " can have it from nowhere"
		if len(without) == 0 {
			why = "what ranks have under this number differs"
		}
		c.log.Warn("holdfast: going back further than the newest epoch", "epoch", e, "why", why, "restorable", newest)
	}
}

// leaveOut removes the epochs after whose restoring the program kept dying.
func (c *Checkpointer) leaveOut(epochs []storage.Epoch, flags epochFlags) ([]storage.Epoch, error) {
	var good, bad []storage.Epoch
	for _, e := range epochs {
		if flags[e]&isPoisoned != 0 {
			bad = append(bad, e)
		} else {
			good = append(good, e)
		}
	}
	if len(bad) == 0 {
		return good, nil
	}
	err := &PoisonedError{Epochs: bad}
	if len(good) == 0 {
		return nil, err
	}
	if c.world.Rank() == 0 {
		c.log.Warn("holdfast: going back further: "+err.Error(), "epoch", good[0])
	}
	return good, nil
}

// learn tells all ranks what the directories of each have, so that shards can be
// had from another node's disk. Collective; a rank that cannot say has nothing
// to offer.
func (c *Checkpointer) learn(ctx context.Context) error {
	mine, err := c.store.Holdings(ctx)
	if err != nil {
		mine = nil
	}
	blobs, gerr := c.allgather(ctx, 0, stageRestore+"holdings", mine)
	if gerr != nil {
		return errors.Join(err, gerr)
	}
	for _, b := range blobs {
		if b.Rank == c.world.Rank() || len(b.Data) == 0 {
			continue
		}
		if lerr := c.store.Learn(b.Rank, b.Data); lerr != nil {
			return errors.Join(err, fmt.Errorf("what rank %d has: %w", b.Rank, lerr))
		}
	}
	return err
}

// candidate is an epoch and what identifies its contents.
type candidate struct {
	epoch storage.Epoch
	id    [16]byte
}

const candidateBytes = 8 + 16 + 1 // the last has the flags

// Flags of an epoch.
const (
	isPoisoned   = 1
	isUnreadable = 2 // the rank cannot have it, and it was committed
)

// epochFlags has what any rank says of an epoch.
type epochFlags map[storage.Epoch]byte

func (f epochFlags) has(flag byte) bool {
	for _, b := range f {
		if b&flag != 0 {
			return true
		}
	}
	return false
}

func encodeCandidates(list []storage.Candidate, unreadable []storage.Epoch, err error) []byte {
	if err != nil {
		return append([]byte{1}, err.Error()...)
	}
	b := []byte{0}
	for _, c := range list {
		b = binary.LittleEndian.AppendUint64(b, uint64(c.Epoch))
		b = append(b, c.ID[:]...)
		if c.Poisoned() {
			b = append(b, isPoisoned)
		} else {
			b = append(b, 0)
		}
	}
	for _, e := range unreadable {
		b = binary.LittleEndian.AppendUint64(b, uint64(e))
		b = append(append(b, make([]byte, 16)...), isUnreadable)
	}
	return b
}

// decodeCandidates returns what each rank has, and what any rank says of an epoch.
func decodeCandidates(op string, blobs []cut.Blob, own error) ([][]candidate, epochFlags, error) {
	flags := epochFlags{}
	per := make([][]candidate, len(blobs))
	texts := make([]string, len(blobs))
	for i, b := range blobs {
		if len(b.Data) == 0 || b.Data[0] != 0 {
			texts[i] = "unknown error"
			if len(b.Data) > 1 {
				texts[i] = string(b.Data[1:])
			}
			continue
		}
		for d := b.Data[1:]; len(d) >= candidateBytes; d = d[candidateBytes:] {
			k := candidate{epoch: storage.Epoch(binary.LittleEndian.Uint64(d))}
			copy(k.id[:], d[8:])
			flag := d[candidateBytes-1]
			flags[k.epoch] |= flag
			if flag&isUnreadable == 0 {
				per[i] = append(per[i], k)
			}
		}
	}
	return per, flags, ranksError(op, texts, own)
}

// intersect returns the epochs that all ranks have with the same contents, in
// the order of the first rank: newest first.
func intersect(per [][]candidate) []storage.Epoch {
	count := map[candidate]int{}
	for _, list := range per {
		for _, k := range list {
			count[k]++
		}
	}
	var out []storage.Epoch
	for _, k := range per[0] {
		if count[k] == len(per) {
			out = append(out, k.epoch)
		}
	}
	return out
}

func anyOf(per [][]candidate) bool {
	for _, list := range per {
		if len(list) > 0 {
			return true
		}
	}
	return false
}

func noCommon(per [][]candidate, flags epochFlags) error {
	err := &NoCommonEpochError{Have: map[int][]storage.Epoch{}, Size: len(per)}
	for e, flag := range flags {
		if flag&isUnreadable != 0 {
			err.Unreadable = append(err.Unreadable, e)
		}
	}
	slices.Sort(err.Unreadable)
	slices.Reverse(err.Unreadable)
	for r, list := range per {
		for _, k := range list {
			err.Have[r] = append(err.Have[r], k.epoch)
		}
	}
	return err
}

// tryLoad loads one epoch on all ranks, or fails on all. That it begins is noted
// before anything of the program changes, and the note is durable before any rank
// goes on.
func (c *Checkpointer) tryLoad(ctx context.Context, e storage.Epoch, l *laps) (level string, bytes int64, err error) {
	durable := func() error { return nil }
	if c.world.Rank() == 0 {
		durable, err = c.store.RestoreBegins(ctx, e)
		l.lap(PartNote)
	}
	if err == nil {
		level, bytes, err = c.loadShard(ctx, e, l)
		err = errors.Join(err, durable())
		l.lap(PartNote)
	}
	blobs, gerr := c.allgather(ctx, cut.Epoch(e), stageRestore+"load", encodeError(err))
	l.lap(PartVote)
	if gerr != nil {
		return "", 0, errors.Join(err, gerr)
	}
	return level, bytes, decodeErrors(fmt.Sprintf("restore epoch %d", e), blobs, err)
}

func (c *Checkpointer) loadShard(ctx context.Context, e storage.Epoch, l *laps) (level string, bytes int64, err error) {
	sh, err := c.store.Fetch(ctx, e)
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	for _, s := range sh.Sections() {
		bytes += s.Size
	}
	c.reading.begin(bytes)
	l.lap(PartOpen)
	return sh.Level(), bytes, c.load(ctx, sh, l)
}
