package storage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Pending lists the epochs that are committed at from, as far as this rank can
// tell, and newer than the newest at to, oldest first: a job that died in the
// middle of a flush left them, and the next one can Flush and Commit them.
func (s *Store) Pending(ctx context.Context, from, to string) ([]Epoch, error) {
	l, err := s.at(to)
	if err != nil {
		return nil, err
	}
	newest, err := l.NewestCommitted()
	if err != nil {
		return nil, err
	}
	states, err := s.Survey(ctx)
	if err != nil {
		return nil, err
	}
	set := map[Epoch]bool{}
	for _, st := range states {
		if st.Level == from && st.Err == nil && st.Epoch > newest {
			set[st.Epoch] = true
		}
	}
	return format.SortedEpochs(set), nil
}

// FlushDirs copies the newest epoch that is whole in the directories from, those
// of a job's nodes, to the global directory to and commits it there, unless to
// has that epoch or a newer one. It is for a job that is dead: a running one
// does this by itself, and its temporary files would be taken for left-overs.
// The epoch is 0 when there was nothing to do.
func FlushDirs(ctx context.Context, from []string, to string) (e Epoch, err error) {
	v, err := OpenView(ctx, from...)
	if err != nil {
		return 0, err
	}
	if len(v.dirs) == 0 {
		return 0, errNoDirs
	}
	release, err := v.lock(ctx, "flush "+rand.Text(), true)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, release()) }()
	info := v.dirs[0].info
	s, err := Open(ctx, Options{Job: info.Job, Size: info.Size, fs: filesOf(ctx), Run: "flush " + rand.Text(),
		Levels: []LevelConfig{{Name: LevelGlobal, Dir: to}}})
	if err != nil {
		return 0, err
	}
	e, err = s.flushDirs(ctx, v)
	return e, errors.Join(err, s.Close())
}

func (s *Store) flushDirs(ctx context.Context, v *View) (Epoch, error) {
	to := s.levels[0]
	epochs, err := v.missingAt(to)
	if err != nil {
		return 0, err
	}
	var problems []error
	for _, e := range epochs {
		infos, err := s.flushAll(ctx, v, e)
		if err == nil {
			return e, s.Commit(ctx, e, to.Name, infos)
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		problems = append(problems, fmt.Errorf("epoch %d: %w", e, err))
	}
	return 0, errors.Join(problems...)
}

// missingAt lists the epochs that any directory has and that are newer than the
// newest at the level whose manifest can be read, newest first.
func (v *View) missingAt(to *levelState) ([]Epoch, error) {
	newest, err := to.NewestReadable()
	if err != nil {
		return nil, err
	}
	set := map[Epoch]bool{}
	for _, d := range v.dirs {
		list, err := d.Epochs()
		if err != nil {
			return nil, err
		}
		for _, x := range list {
			have, err := d.HasManifest(x)
			if err != nil {
				return nil, err
			}
			if have && x > newest {
				set[x] = true
			}
		}
	}
	out := format.SortedEpochs(set)
	slices.Reverse(out)
	return out, nil
}

// flushAll copies the shards of all ranks.
func (s *Store) flushAll(ctx context.Context, v *View, e Epoch) ([]ShardInfo, error) {
	var from []shard.Source
	for _, d := range v.dirs {
		if d.Name != LevelParity {
			from = append(from, &d.Dir)
		}
	}
	var infos []ShardInfo
	for r := range s.opt.Size {
		sh, err := s.fetch(ctx, e, r, from)
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		info, err := s.flushDir(ctx, sh, s.levels[0], sh.asSections(ctx))
		info.Node = sh.copies[0].At.Info.Node
		if err := errors.Join(err, sh.Close()); err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		infos = append(infos, info)
	}
	return infos, nil
}
