package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/random"
	"github.com/holdfast-hpc/holdfast/storage/internal/catalog"
	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Copied is the result of Copy.
type Copied struct {
	Epoch   Epoch
	Bytes   int64 // of the state of all ranks
	Already bool  // it was there; nothing was written
}

// Copy copies an epoch from directories of a job, of any levels, to another directory or object store. It commits it
// there as at the level global: complete, and without reference to other epochs. The directory is made if only the last
// element of its path is missing. e is 0 for the newest epoch. At most jobs shards are copied at once; 0 means 4.
//
// The shards are read from wherever from has them right, chunk by chunk, or are computed from parity. Each is read back
// and verified before the epoch is committed. It completes the unfinished copy of an earlier call. An epoch that is
// there with the same contents is left alone; with other contents, or damaged (ErrCorrupt), it is an error.
//
// from is not written to and not locked: files of an epoch never change. When the job prunes the epoch meanwhile, the
// copy fails and nothing is committed (see PinEpoch). No run of a job may use the directory to (*BusyError).
//
// It reads every byte of the epoch, writes it, and reads it back.
func Copy(ctx context.Context, from []string, to string, e Epoch, jobs int) (done Copied, err error) {
	v, err := Open(ctx, from...)
	if err != nil {
		return done, err
	}
	if len(v.dirs) == 0 {
		return done, errNoDirs
	}
	if i := slices.IndexFunc(from, func(d string) bool { return placeOf(d) == placeOf(to) }); i >= 0 {
		return done, &level.OptionError{Field: "to", Reason: to + " is also a directory to copy from"}
	}
	if e == 0 {
		if e, err = v.newest(); err != nil {
			return done, err
		}
	}
	if err := v.readable(e); err != nil {
		return done, err
	}
	// The copy stays until a person removes it: verify then misses each of the copies.
	t, err := v.openTarget(ctx, to, target{run: "copy " + random.Text(), jobs: jobs, create: true, readsBack: true,
		keepEvery: 1})
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	return t.copyEpoch(ctx, v, e)
}

// newest returns the newest epoch whose manifest can be read.
func (v *View) newest() (Epoch, error) {
	newest := Epoch(0)
	for _, d := range v.dirs {
		e, err := catalog.NewestReadable(d)
		if err != nil {
			return 0, err
		}
		newest = max(newest, e)
	}
	if newest > 0 {
		return newest, nil
	}
	return 0, fmt.Errorf("no epoch is committed in the directories: %w", level.ErrNotCommitted)
}

// readable returns an error if no directory has a readable manifest of an epoch.
func (v *View) readable(e Epoch) error {
	var problems []error
	for _, d := range v.dirs {
		_, err := d.ReadManifest(e)
		if err == nil {
			return nil
		}
		if !errors.Is(err, level.ErrNotCommitted) {
			problems = append(problems, err)
		}
	}
	if len(problems) == 0 {
		problems = append(problems, level.ErrNotCommitted)
	}
	return fmt.Errorf("epoch %d in the directories: %w", e, errors.Join(problems...))
}

func (t *target) copyEpoch(ctx context.Context, v *View, e Epoch) (done Copied, err error) {
	ids := v.contentsOf(e)
	done.Epoch = e
	have, err := t.ReadManifest(e)
	switch {
	case err == nil && !slices.Contains(ids, have.ID()):
		return done, fmt.Errorf("%s has another epoch %d of this job, with other contents: copy to another "+
			"directory, or remove that one first ('holdfast prune')", t.Path(), e)
	case err == nil:
		done.Already, done.Bytes = true, bytesOf(have.Shards)
		return done, damagedCopy(t, e, shard.Parallel(have.Size, t.jobs, func(r int, _ *shard.Scratch) error {
			return errors.Join(ctx.Err(), level.Probe(t, have, r)) // looks at length and footer
		}))
	case level.OfOtherRun(err):
		return done, err
	case !errors.Is(err, level.ErrNotCommitted):
		return done, damagedCopy(t, e, err)
	}
	infos, err := t.copyAll(ctx, v, e)
	if err == nil {
		err = t.commit(ctx, e, infos)
	}
	if err == nil {
		err = level.WriteHistory(t, &format.History{Epoch: e, Level: t.Name(), Run: t.info.Run})
	}
	done.Bytes = bytesOf(infos)
	return done, err
}

// copyAll copies the shards of all ranks. If directories hold different epochs under the number it takes one that is
// there for all ranks.
func (t *target) copyAll(ctx context.Context, v *View, e Epoch) (infos []ShardInfo, err error) {
	var problems []error
	for _, id := range v.contentsOf(e) {
		if infos, err = t.copyContents(ctx, v, e, id); err == nil || ctx.Err() != nil {
			return infos, err
		}
		problems = append(problems, err)
	}
	return nil, fmt.Errorf("epoch %d: %w", e, errors.Join(problems...))
}

func bytesOf(shards []ShardInfo) (n int64) {
	for i := range shards {
		n += shards[i].Bytes
	}
	return n
}

// damagedCopy adds the remedy for an epoch that was copied and is damaged now.
func damagedCopy(to level.Epochs, e Epoch, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("epoch %d is in %s already and is damaged there: %w (run 'holdfast repair' with both "+
		"directories)", e, to.Path(), err)
}

// copyContents is copyAll for one of the contents.
func (t *target) copyContents(ctx context.Context, v *View, e Epoch, id [16]byte) ([]ShardInfo, error) {
	if m := v.manifestWith(e, id); m != nil { // a job that changes its number of ranks has epochs of several
		t.info.Size = m.Size
	}
	infos, from := make([]ShardInfo, t.info.Size), v.sources(e, id)
	err := shard.Parallel(t.info.Size, t.jobs, func(r int, _ *shard.Scratch) (err error) {
		for _, again := range []bool{false, true} { // an earlier copy may have left a file that is damaged
			if infos[r], err = t.bring(ctx, e, r, from, again); err != nil {
				break
			}
			if !t.readsBack {
				break
			}
			if err = readBack(ctx, t, e, infos[r]); !errors.Is(err, format.ErrCorrupt) {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("rank %d: %w", r, v.whereItIs(e, id, r, err))
		}
		return nil
	})
	return infos, err
}

// readBack verifies a whole shard that was written and is not committed yet.
func readBack(ctx context.Context, l level.Epochs, e Epoch, info ShardInfo) error {
	x, err := fetch.OpenExtent(l, e, info.FileName(), info)
	if err != nil {
		return err
	}
	c, err := x.Open(fetch.At(l), e)
	if err != nil {
		return err
	}
	faults, err := c.Verify(ctx)
	return errors.Join(append(faults, err, c.Close())...)
}
