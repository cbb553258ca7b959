package checkpoints

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/catalog"
	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// target is a directory or object store of the level global that a tool copies epochs to, its own meanwhile.
type target struct {
	run       string // of the lock: others with the name may work there, too
	jobs      int    // shards copied at once; 0: defaultJobs
	create    bool   // if only the last element of the path is missing
	shared    bool   // others work there, too, under the name of the same rank
	readsBack bool   // each shard, before the epoch is committed
	keepEvery int    // the rule for the epochs there, for verify
	elastic   bool   // the job's number of ranks may change

	level.Level
	info  DirInfo // whose epochs they are
	guard *level.Guard
	pool  *shard.Pool
	last  Epoch // committed by this call
}

const (
	defaultJobs = 4 // shards that a tool copies at once
	readers     = 2 // goroutines that read one of them
	ledgerKeep  = 2 // epochs that verify expects of those there, as if a job had written them
)

// poolFor makes the memory for a number of jobs; 0 means defaultJobs.
func poolFor(jobs int) *shard.Pool {
	return shard.NewPool(cmp.Or(jobs, defaultJobs) * shard.WriterBuffers)
}

// specOf returns how a rank's part of an epoch is written.
func specOf(of *DirInfo, e Epoch, rank int, node string, secs []shard.Section) *shard.Spec {
	return &shard.Spec{
		Head: format.Header{Epoch: e, Rank: rank, Size: of.Size, Created: time.Now().UnixNano(), Job: of.Job,
			Node: node},
		Sections: secs,
	}
}

// fromDirs has the directories that a target differs from.
const fromDirs = "those to copy from"

// openTarget claims the directory at a path for the job whose directories v has. The caller closes it.
func (v *View) openTarget(ctx context.Context, path string, how target) (*target, error) {
	bad := func(reason string) error { return &level.OptionError{Field: "to", Reason: reason} }
	if path == "" {
		return nil, bad("is empty")
	}
	if err := level.CheckPath(path); err != nil {
		return nil, bad(err.Error())
	}
	if !level.IsStore(path) {
		path = filepath.Clean(path)
	}
	t := &how
	t.info, t.jobs = v.dirs[0].info, cmp.Or(how.jobs, defaultJobs)
	t.elastic = slices.ContainsFunc(v.dirs, (*viewDir).resizable)
	t.Level = level.Until(ctx, level.At(filesOf(ctx), format.LevelGlobal, path, 0, &level.Contents{Run: t.info.Run}))
	t.guard = level.NewGuard(ctx, t.run)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := t.claim(ctx); err != nil {
		return nil, errors.Join(err, t.guard.Release())
	}
	t.guard.KeepAlive()
	t.pool = poolFor(t.jobs)
	return t, nil
}

func (t *target) claim(ctx context.Context) error {
	if err := t.Prepare(t.create); err != nil {
		return err
	}
	err := level.Claim(t, t.marker())
	var size *level.SizeError
	var other *level.JobError
	switch isSize := errors.As(err, &size); {
	case isSize && t.elastic:
		err = nil
	case isSize:
		size.Other = fromDirs
	case errors.As(err, &other):
		other.Other = fromDirs
	}
	if err != nil {
		return err
	}
	// Before anything of an earlier run is cleared away: it may be alive.
	if err := t.guard.Take(ctx, t.Level); err != nil {
		return err
	}
	// The directory becomes one of the run whose epochs are copied there, if it has none of another run.
	if err := level.ClaimRun(t, t.info.Run, func() error {
		w := level.OwnerOf(levelOf(ctx, t.Path(), nil))
		if w.HasEpochs && !t.info.Run.Owns(w.Run) {
			return &level.RunError{Level: t.Name(), Dir: t.Path(), Have: w.Run, Want: t.info.Run,
				Other: "what is to be copied", Remedy: "copy to a directory of that run, or to a new one"}
		}
		return nil
	}); err != nil {
		return err
	}
	if t.shared {
		return level.BeginHistory(t)
	}
	return errors.Join(t.ClearTemps(), level.BeginHistory(t))
}

func (t *target) marker() format.Marker {
	return format.Marker{Job: t.info.Job, Size: t.info.Size, Level: t.Name(), Run: t.info.Run}
}

// close gives the directory up. The ledger there is a hint: that it cannot be written is no error.
func (t *target) close() error {
	if t.last > 0 {
		if epochs, err := catalog.Inventory(t); err == nil {
			_ = level.WriteLedger(t, &format.Ledger{Run: t.info.Run, Levels: []format.LedgerLevel{{Name: t.Name(),
				Keep: ledgerKeep, KeepEvery: t.keepEvery, Epochs: epochs}}})
		}
	}
	return errors.Join(t.pool.Close(), t.guard.Release())
}

// commit publishes an epoch of which the shards of all ranks are there.
func (t *target) commit(ctx context.Context, e Epoch, shards []ShardInfo) error {
	if err := t.guard.Err(); err != nil {
		return err
	}
	m := &format.Manifest{Epoch: e, Size: t.info.Size, Job: t.info.Job, Level: t.Name(), Shards: slices.Clone(shards),
		Run: t.info.Run}
	err := ctx.Err()
	if err == nil {
		err = t.guard.Retake(ctx, t.Level)
	}
	if err == nil {
		err = t.updateMarker()
	}
	if err == nil {
		err = t.Commit(m, m.Origins())
	}
	if err != nil {
		return &fetch.ShardError{Op: "commit", Epoch: e, Level: t.Name(), Err: err}
	}
	t.last = max(t.last, e)
	return nil
}

// updateMarker makes the directory one of as many ranks as the epoch has that is about to be committed, and puts a lost
// marker back.
func (t *target) updateMarker() error {
	if have, err := level.ReadMarker(t); err == nil && have.Size != t.info.Size {
		return level.RewriteMarker(t, t.marker())
	}
	return t.RestoreMarker(t.marker())
}

// bring copies a rank's shard from directories of the job. With again it does so even if an earlier attempt has left a
// file that looks complete.
func (t *target) bring(ctx context.Context, e Epoch, rank int, from []shard.Source, again bool) (info ShardInfo,
	err error) {
	if err := t.guard.Err(); err != nil {
		return info, err
	}
	sh, err := fetch.Open(ctx, quiet, e, rank, from)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	return t.take(ctx, sh, again)
}

// take makes a shard durable, and not yet committed. Committed epochs are not touched.
func (t *target) take(ctx context.Context, sh *Shard, again bool) (info ShardInfo, err error) {
	e, rank, of := sh.Epoch(), sh.Rank(), fetch.CopyOf(sh).At.Info
	m, err := t.ReadManifest(e)
	if err == nil {
		if info, err = m.Shard(rank); err == nil && info.Digest != of.Digest {
			err = level.ErrCommitted
		}
		return info, err
	}
	if !errors.Is(err, level.ErrNotCommitted) {
		return info, err
	}
	info, _, err = fetch.Uncommitted(t, e, rank)
	if err == nil && info.Digest == of.Digest && !again {
		info.Node = of.Node
		return info, t.SyncEpoch(e)
	}
	spec := specOf(&t.info, e, rank, of.Node, fetch.Sections(ctx, sh, readers))
	spec.Wanted, spec.Digest = fetch.IndexOf(sh), of.Digest
	err = t.Put(e, spec.FileName(), fetch.RoomOf(spec), func(f vfs.File) (err error) {
		info, _, err = shard.WriteShard(ctx, f, t.pool, nil, spec)
		return err
	})
	return info, err
}
