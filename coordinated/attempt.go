package coordinated

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/storage"
)

// attempt is one epoch on its way into the program, on this rank. It goes in three
// steps, and the ranks agree after each:
//
//  1. read: every byte is read and verified. Large memory and device contents go to
//     their places at once, with what was there before kept; all else is decoded and
//     changes nothing. What cannot be kept is verified and not touched.
//  2. apply: what had to wait is read, slices get their lengths, and the program's
//     own UnmarshalBinary and LoadFrom run.
//  3. finish: mailbox and requests, which cannot fail. Another rank may be computing
//     already: windows, which it could reach, are memory of the first step.
//
// undo after a step makes everything what it was before the first.
type attempt struct {
	c  *Checkpointer
	sh *storage.Shard

	steps   []step         // of apply, in order
	undone  []func() error // of undo, last first
	last    []func()       // of finish
	runs    bool           // apply may fail: it reads, or runs the program's code
	spoiled []string       // names of what undo cannot bring back
	stop    bool           // one of them is a device: an older epoch may not hold all its objects
}

// step is a part of apply.
type step struct {
	name  string
	do    func(ctx context.Context) error
	final bool // it cannot be taken back
}

// read is the first step.
func (a *attempt) read(ctx context.Context, l *laps) error {
	sizes := map[string]int64{}
	for _, s := range a.sh.Sections() {
		sizes[s.Name] = s.Size
	}
	entries, err := a.c.loadVars(ctx, a.sh, sizes)
	if err != nil {
		return err
	}
	if err := a.c.compare(entries, sizes); err != nil {
		return err
	}
	mail := make([]byte, sizes[sectionMailbox])
	if err := a.sh.ReadAt(ctx, sectionMailbox, mail, 0); err != nil {
		return fmt.Errorf("restore mailbox: %w", err)
	}
	deliver, err := a.c.endpoint.StageMailbox(mail)
	if err != nil {
		return fmt.Errorf("restore mailbox: %w", err)
	}
	for _, r := range a.c.state.regions {
		if err := a.region(ctx, r, entries[r.name]); err != nil {
			return fmt.Errorf("restore %q: %w", r.name, err)
		}
		a.c.reading.read.Add(entries[r.name].size)
	}
	l.lap(PartMemory)
	for _, d := range a.c.state.devices {
		if err := a.device(ctx, d, sizes, l); err != nil {
			return fmt.Errorf("restore %q: %w", d.name, err)
		}
	}
	a.last = append(a.last, deliver)
	return nil
}

func (a *attempt) region(ctx context.Context, r namedRegion, e entry) error {
	s, err := r.stage(e.size)
	if err != nil {
		return err
	}
	if s.live {
		back := a.c.keep.keep(s.dst)
		if back == nil {
			return a.later(ctx, r.name, s, e)
		}
		a.undone = append(a.undone, func() error { back(); return nil })
	}
	if err := readRegion(ctx, a.sh, s.dst, e); err != nil {
		return err
	}
	if s.check != nil {
		if err := s.check(); err != nil {
			return err
		}
	}
	a.toApply(r.name, s)
	if s.last != nil {
		a.last = append(a.last, s.last)
	}
	return nil
}

// toApply enters what is to be done with a region's bytes.
func (a *attempt) toApply(name string, s *staged) {
	if s.apply == nil {
		return
	}
	a.runs = a.runs || s.runs()
	a.steps = append(a.steps, step{name, func(context.Context) error {
		if s.undo != nil {
			a.undone = append(a.undone, func() error { s.undo(); return nil })
		}
		return s.apply()
	}, s.undo == nil})
}

// later is for memory whose contents there is no room to keep: the saved bytes are
// verified now, and read when all ranks know theirs to be good.
func (a *attempt) later(ctx context.Context, name string, s *staged, e entry) error {
	if e.inline == nil {
		if err := a.sh.Check(ctx, sectionData+e.name); err != nil {
			return err
		}
	}
	a.runs = true
	a.steps = append(a.steps, step{name, func(ctx context.Context) error {
		return readRegion(ctx, a.sh, s.dst, e)
	}, true})
	a.toApply(name, s)
	return nil
}

func (a *attempt) device(ctx context.Context, d namedDevice, sizes map[string]int64, l *laps) error {
	load := func(ctx context.Context) error { return a.c.loadDevice(ctx, a.sh, d, sizes[sectionGPU+d.name], l) }
	mark, err := a.c.mark(ctx, d)
	if err != nil {
		return err
	}
	if mark == nil {
		for name := range sizes {
			if name == sectionGPU+d.name || strings.HasPrefix(name, sectionGPU+d.name+"/") {
				if err := a.sh.Check(ctx, name); err != nil {
					return err
				}
			}
		}
		a.runs = true
		a.steps = append(a.steps, step{d.name, func(ctx context.Context) error {
			a.stop = true
			return load(ctx)
		}, true})
		return nil
	}
	a.undone = append(a.undone, func() error { return mark.Undo(context.WithoutCancel(ctx)) })
	return load(ctx)
}

// mark notes a device as it was before the first attempt; nil when there is no room
// for its contents.
func (c *Checkpointer) mark(ctx context.Context, d namedDevice) (*gpustate.Mark, error) {
	if m, ok := c.marks[d.name]; ok {
		return m, nil
	}
	if limit := c.opt.MaxPool; limit > 0 && d.dev.StateBytes() > limit {
		return nil, nil
	}
	m, err := d.dev.Mark(ctx, c.pool.allocDevice)
	if err != nil {
		return nil, err
	}
	if c.marks == nil {
		c.marks = map[string]*gpustate.Mark{}
	}
	c.marks[d.name] = m
	return m, nil
}

// forgetBefore ends what was kept for attempts that fail, and leaves the pool to the
// captures.
func (c *Checkpointer) forgetBefore() {
	if c.keep == nil {
		return
	}
	for name, m := range c.marks {
		if err := m.Release(); err != nil {
			c.log.Warn("holdfast: memory of a device that a restore took", "device", name, "error", err)
		}
	}
	c.keep.close()
	c.keep, c.marks = nil, nil
	c.pool.claim()
	c.pool.hasGrown()
}

// apply is the second step.
func (a *attempt) apply(ctx context.Context) error {
	for _, s := range a.steps {
		if s.final {
			a.spoiled = append(a.spoiled, s.name)
		}
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("restore %q: %w", s.name, err)
		}
	}
	return nil
}

// finish is the third step.
func (a *attempt) finish() {
	for _, f := range a.last {
		f()
	}
}

// undo makes everything what it was, the last change first.
func (a *attempt) undo() error {
	var errs []error
	for i := len(a.undone) - 1; i >= 0; i-- {
		errs = append(errs, a.undone[i]())
	}
	a.undone = nil
	return errors.Join(errs...)
}

// tryLoad loads one epoch on all ranks, or fails on all and leaves no trace. That it
// begins is noted before anything of the program changes, and the note is durable
// before any rank goes on.
func (c *Checkpointer) tryLoad(ctx context.Context, e storage.Epoch, l *laps) (level string, bytes int64, err error) {
	durable := func() error { return nil }
	if c.world.Rank() == 0 {
		durable, err = c.store.RestoreBegins(ctx, e)
		l.lap(PartNote)
	}
	a := &attempt{c: c}
	defer a.close(e)
	if err == nil {
		bytes, err = a.open(ctx, e, l)
		if err == nil {
			level, err = a.sh.Level(), a.read(ctx, l)
		}
		err = errors.Join(err, durable())
		l.lap(PartNote)
	}
	runs, err := a.vote(ctx, e, "load", err)
	l.lap(PartVote)
	if err == nil {
		err = a.apply(ctx)
	}
	if runs {
		_, err = a.vote(ctx, e, "apply", err)
		l.lap(PartVote)
	}
	if err == nil {
		a.finish()
		return level, bytes, nil
	}
	if uerr := a.undo(); uerr != nil {
		c.log.Error("holdfast: what a failed restore did cannot all be taken back", "epoch", e, "error", uerr)
	}
	if c.world.Rank() == 0 {
		c.takenBack(e)
	}
	return "", 0, err
}

// close closes the shard. All that is needed of it was read and verified, and the ranks
// have voted: an error of this one alone must not make it another attempt.
func (a *attempt) close(e storage.Epoch) {
	if a.sh == nil {
		return
	}
	if err := a.sh.Close(); err != nil {
		a.c.log.Warn("holdfast: closing a shard after it was read", "epoch", e, "error", err)
	}
}

// open opens this rank's shard and says how many bytes it holds.
func (a *attempt) open(ctx context.Context, e storage.Epoch, l *laps) (bytes int64, err error) {
	if a.sh, err = a.c.store.Fetch(ctx, e); err != nil {
		return 0, err
	}
	for _, s := range a.sh.Sections() {
		bytes += s.Size
	}
	a.c.reading.begin(bytes)
	l.lap(PartOpen)
	return bytes, nil
}

// The first byte of a vote on an attempt.
const (
	voteFailed   = 1 << 0 // the text of the error follows
	voteRuns     = 1 << 1 // apply may fail: vote again after it
	voteMismatch = 1 << 2 // the error is that the program protects something else
	voteSpoiled  = 1 << 3 // undo will not bring everything back: names follow
	voteStop     = 1 << 4 // nor would an older epoch
)

// vote agrees on whether a step went well on all ranks. runs says that some rank's
// apply may fail.
func (a *attempt) vote(ctx context.Context, e storage.Epoch, step string, own error) (runs bool, err error) {
	blobs, gerr := a.c.allgather(ctx, cut.Epoch(e), stageRestore+step, a.ballot(own))
	if gerr != nil {
		return false, errors.Join(own, gerr)
	}
	var all byte
	failed := &RestoreError{}
	texts := make([]string, len(blobs))
	for i, b := range blobs {
		if len(b.Data) == 0 {
			texts[i] = "no vote"
			continue
		}
		flags, rest := b.Data[0], string(b.Data[1:])
		all |= flags
		if flags&voteSpoiled != 0 {
			var names string
			names, rest, _ = strings.Cut(rest, "\n\n")
			failed.Undefined = append(failed.Undefined, strings.Split(names, "\n")...)
		}
		if flags&voteFailed != 0 {
			texts[i] = orUnknown(rest)
		}
	}
	failed.Err = ranksError(fmt.Sprintf("restore epoch %d", e), texts, own)
	if failed.Err == nil {
		return all&voteRuns != 0, nil
	}
	slices.Sort(failed.Undefined)
	failed.Undefined = slices.Compact(failed.Undefined)
	failed.Mismatch, failed.stop = all&voteMismatch != 0, all&voteStop != 0
	return false, failed
}

func (a *attempt) ballot(own error) []byte {
	b := []byte{0}
	if a.runs {
		b[0] |= voteRuns
	}
	if len(a.spoiled) > 0 {
		b[0] |= voteSpoiled
		b = append(b, strings.Join(a.spoiled, "\n")+"\n\n"...)
	}
	if a.stop {
		b[0] |= voteStop
	}
	if own == nil {
		return b
	}
	b[0] |= voteFailed
	var other *MismatchError
	if errors.As(own, &other) || errors.Is(own, gpustate.ErrConflict) {
		b[0] |= voteMismatch
	}
	return append(b, own.Error()...)
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown error"
	}
	return text
}

// takenBack notes that an epoch was not restored after all, so that the end of this
// process is not held against it.
func (c *Checkpointer) takenBack(e storage.Epoch) {
	if err := c.store.RestoreTakenBack(c.ctx, e); err != nil && c.ctx.Err() == nil {
		c.log.Warn("holdfast: note that a restore was given up", "epoch", e, "error", err)
	}
}
