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
// Point. Every byte is verified while it is read; a shard that turns out bad
// makes all ranks fall back to the epoch before, and the log says why.
//
// Errors are the same on all ranks: *NoCommonEpochError when checkpoints exist
// but none for all, *RanksError with the reasons when all of them failed to
// load. Protected state is undefined then; the program should end.
func (c *Checkpointer) Restore(ctx context.Context) (bool, error) {
	if c.closed.Load() {
		return false, ErrClosed
	}
	if c.restored.Swap(true) {
		return false, fmt.Errorf("coordinated: Restore was called before; a program restores once")
	}
	start := time.Now()
	end := c.events.Span(events.Event{Name: events.Restore})
	epochs, err := c.common(ctx)
	if err != nil {
		end(ended(events.Event{}, err))
		return false, err
	}
	var errs []error
	for _, e := range epochs {
		level, bytes, err := c.tryLoad(ctx, e)
		if err == nil {
			fetched := time.Since(start)
			end(events.Event{Epoch: uint64(e), Level: level, Bytes: bytes})
			c.ready()
			c.stats.restore(RestoreStats{Epoch: e, Level: level, Bytes: bytes, Took: time.Since(start), Fetch: fetched})
			c.log.Info("holdfast: restored", "epoch", e, "level", level, "bytes", bytes, "took", time.Since(start).Round(time.Microsecond))
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
		return false, fmt.Errorf("coordinated: no epoch could be restored; run 'holdfast verify' on the directories, or start anew with HOLDFAST_FRESH=1: %w", errors.Join(errs...))
	}
	if c.world.Rank() == 0 {
		c.log.Info("holdfast: no checkpoint found, first start", "job", c.opt.Job)
	}
	end(events.Event{})
	c.ready()
	return false, nil
}

// ready opens the gate and warms the pool for what is protected now.
func (c *Checkpointer) ready() {
	c.pool.reserve(c.state.bytes())
	c.gate.And(^uint32(gateRestore))
}

// common agrees on the epochs that every rank can read, newest first.
func (c *Checkpointer) common(ctx context.Context) ([]storage.Epoch, error) {
	var list []storage.Candidate
	err := c.learn(ctx)
	if err == nil && !c.opt.Fresh {
		list, err = c.store.Candidates(ctx)
	}
	blobs, gerr := c.allgather(ctx, 0, stageRestore+"candidates", encodeCandidates(list, err))
	if gerr != nil {
		return nil, errors.Join(err, gerr)
	}
	per, err := decodeCandidates("look for checkpoints", blobs, err)
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
	if len(both) == 0 && anyOf(per) {
		return nil, noCommon(per)
	}
	return both, nil
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

const candidateBytes = 8 + 16

func encodeCandidates(list []storage.Candidate, err error) []byte {
	if err != nil {
		return append([]byte{1}, err.Error()...)
	}
	b := []byte{0}
	for _, c := range list {
		b = binary.LittleEndian.AppendUint64(b, uint64(c.Epoch))
		b = append(b, c.ID[:]...)
	}
	return b
}

func decodeCandidates(op string, blobs []cut.Blob, own error) ([][]candidate, error) {
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
			per[i] = append(per[i], k)
		}
	}
	return per, ranksError(op, texts, own)
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

func noCommon(per [][]candidate) error {
	err := &NoCommonEpochError{Have: map[int][]storage.Epoch{}, Size: len(per)}
	for r, list := range per {
		for _, k := range list {
			err.Have[r] = append(err.Have[r], k.epoch)
		}
	}
	return err
}

// tryLoad loads one epoch on all ranks, or fails on all.
func (c *Checkpointer) tryLoad(ctx context.Context, e storage.Epoch) (level string, bytes int64, err error) {
	if c.world.Rank() == 0 {
		err = c.store.RestoreBegins(ctx, e)
	}
	if err == nil {
		level, bytes, err = c.loadShard(ctx, e)
	}
	blobs, gerr := c.allgather(ctx, cut.Epoch(e), stageRestore+"load", encodeError(err))
	if gerr != nil {
		return "", 0, errors.Join(err, gerr)
	}
	return level, bytes, decodeErrors(fmt.Sprintf("restore epoch %d", e), blobs, err)
}

func (c *Checkpointer) loadShard(ctx context.Context, e storage.Epoch) (level string, bytes int64, err error) {
	sh, err := c.store.Fetch(ctx, e)
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	for _, s := range sh.Sections() {
		bytes += s.Size
	}
	return sh.Level(), bytes, c.load(ctx, sh)
}
