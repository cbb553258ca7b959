package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/random"
	"github.com/holdfast-hpc/holdfast/storage/internal/catalog"
	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Salvage is Flush for nodes that do not see each other's directories; each node of a job that gives up calls it. It
// copies all shards of the newest epochs in the directories from to the global directory to. It commits an epoch there
// when the shards of all ranks are complete, whichever node brings the last one. from are the node's local directory
// and the one with its partner copies, in any order; missing and empty ones are skipped.
//
// run is a name that all nodes of this salvage share and no run of the job has:
// the global directory serves it alone. At most jobs shards are copied at once; 0 means
// 4. It works on at most the two newest epochs after the newest at to, the newest
// first. The result is the newest epoch that is now committed at to and to which this call has contributed. It is 0 if
// there was nothing to do or shards are still missing. Shards of an incomplete epoch are garbage to the next run of the
// job, or the start of its flush.
func Salvage(ctx context.Context, run string, from []string, to string, jobs int) (done Epoch, err error) {
	if run == "" {
		return 0, &level.OptionError{Field: "Run", Reason: "is empty: give the salvage a name, the same on all nodes"}
	}
	if len(from) == 0 {
		return 0, errNoDirs
	}
	v, err := openSome(ctx, from)
	if err != nil || len(v.dirs) == 0 {
		return 0, err
	}
	return v.into(ctx, to, target{run: run, jobs: jobs, shared: true}, (*target).salvage)
}

// into has do work on the directories and the one to copy to, which are its own meanwhile.
func (v *View) into(ctx context.Context, to string, how target, do func(t *target, ctx context.Context, v *View) (Epoch,
	error)) (e Epoch, err error) {
	release, err := v.lock(ctx, how.run, true)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, release()) }()
	t, err := v.openTarget(ctx, to, how)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	return do(t, ctx, v)
}

// openSome is Open for directories that may not all exist.
func openSome(ctx context.Context, dirs []string) (*View, error) {
	var good []string
	var problems []error
	for _, d := range dirs {
		if _, err := Open(ctx, d); err != nil {
			problems = append(problems, err)
			continue
		}
		good = append(good, d)
	}
	if len(good) == 0 {
		return nil, errors.Join(problems...)
	}
	return Open(ctx, good...)
}

// salvageEpochs is the number of epochs that are tried: the newest may have died with a node, and the one before it be
// newer than those at the global level.
const salvageEpochs = 2

func (t *target) salvage(ctx context.Context, v *View) (Epoch, error) {
	epochs, err := v.missingAt(t)
	if err != nil {
		return 0, err
	}
	var problems []error
	for _, e := range epochs[:min(len(epochs), salvageEpochs)] {
		if err := t.salvageShards(ctx, v, e); err != nil {
			problems = append(problems, err)
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		whole, err := t.commitWhole(ctx, v, e)
		if whole {
			return e, nil
		}
		problems = append(problems, err)
	}
	return 0, errors.Join(problems...)
}

// salvageShards copies the shards of an epoch that the directories have. A shard that cannot be read does not stop the
// others.
func (t *target) salvageShards(ctx context.Context, v *View, e Epoch) error {
	var from []shard.Source
	have := map[int]bool{}
	for _, d := range v.dirs {
		m, err := d.ReadManifest(e)
		if err != nil || d.Traits().Rows {
			continue
		}
		ranks, err := level.RanksHere(d, m)
		if err != nil {
			return err
		}
		for _, r := range ranks {
			have[r] = true
		}
		from = append(from, fetch.At(d))
	}
	ranks := slices.Sorted(maps.Keys(have))
	problems := make([]error, len(ranks))
	_ = shard.Parallel(len(ranks), t.jobs, func(i int, _ *shard.Scratch) error {
		_, err := t.bring(ctx, e, ranks[i], from, false)
		if err != nil && !errors.Is(err, level.ErrCommitted) {
			problems[i] = fmt.Errorf("epoch %d, rank %d: %w", e, ranks[i], err)
		}
		return ctx.Err()
	})
	return errors.Join(problems...)
}

// commitWhole commits an epoch whose shards are there for all ranks, as a manifest in the directories lists them. Nodes
// that do so at once write the same manifest.
func (t *target) commitWhole(ctx context.Context, v *View, e Epoch) (whole bool, err error) {
	if _, err := t.ReadManifest(e); level.OfOtherRun(err) {
		return false, err
	}
	if have, err := level.HasManifest(t, e); have || err != nil {
		return have && err == nil, err
	}
	ids := v.contentsOf(e)
	if len(ids) == 0 {
		return false, nil // this node cannot know whose shards those are
	}
	m := v.manifestWith(e, ids[0])
	if m == nil {
		return false, level.ErrNotCommitted // it has gone meanwhile
	}
	t.info.Size = m.Size
	var infos []ShardInfo
	for r := range t.info.Size {
		info, _, err := fetch.Uncommitted(t, e, r)
		if err != nil {
			return false, nil // another node commits it, or none does
		}
		if info.Digest != m.Shards[r].Digest {
			return false, fmt.Errorf("epoch %d, rank %d: the shard at %s is not the one that was committed: %w", e, r,
				t.Path(), format.ErrCorrupt)
		}
		info.Node = m.Shards[r].Node
		infos = append(infos, info)
	}
	err = t.commit(ctx, e, infos)
	return err == nil, err
}

// Flush copies the newest epoch that is whole in the directories from, those of a job's nodes, to the global directory
// to. It commits it there, unless to has that epoch or a newer one. Shards that are lost are computed, where from has
// the parity for it. At most jobs shards are copied at once; 0 means 4. The job must be dead (*BusyError): a running
// one flushes by itself, and Flush would remove its temporary files as garbage. The epoch is 0 when there was nothing
// to do.
func Flush(ctx context.Context, from []string, to string, jobs int) (e Epoch, err error) {
	v, err := Open(ctx, from...)
	if err != nil {
		return 0, err
	}
	if len(v.dirs) == 0 {
		return 0, errNoDirs
	}
	return v.into(ctx, to, target{run: "flush " + random.Text(), jobs: jobs}, (*target).flush)
}

func (t *target) flush(ctx context.Context, v *View) (Epoch, error) {
	epochs, err := v.missingAt(t)
	if err != nil {
		return 0, err
	}
	var problems []error
	for _, e := range epochs {
		infos, err := t.copyAll(ctx, v, e)
		if err == nil {
			return e, t.commit(ctx, e, infos)
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		problems = append(problems, err)
	}
	return 0, errors.Join(problems...)
}

// missingAt lists the epochs that any directory has and that are newer than the
// newest at the level whose manifest can be read, newest first.
func (v *View) missingAt(to level.Epochs) ([]Epoch, error) {
	newest, err := catalog.NewestReadable(to)
	if err != nil {
		return nil, err
	}
	set := map[Epoch]bool{}
	for _, d := range v.dirs {
		list, err := d.committed()
		if err != nil {
			return nil, err
		}
		for _, x := range list {
			if x > newest {
				set[x] = true
			}
		}
	}
	return format.NewestFirst(maps.Keys(set)), nil
}

// contentsOf lists the contents that the manifests of an epoch commit, the most frequent first.
func (v *View) contentsOf(e Epoch) (ids [][16]byte) {
	count := map[[16]byte]int{}
	for _, d := range v.dirs {
		if m, err := d.ReadManifest(e); err == nil {
			id := m.ID()
			if count[id]++; count[id] == 1 {
				ids = append(ids, id)
			}
		}
	}
	slices.SortStableFunc(ids, func(a, b [16]byte) int { return count[b] - count[a] })
	return ids
}
