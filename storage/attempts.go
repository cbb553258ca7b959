package storage

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// NoteRestore records that the program is about to restore an epoch. If the program
// dies before NoteSurvival, Candidates counts that among the Deaths of the epoch,
// which may be the cause. One rank does this for all, the same in every run; since only epochs that
// all ranks are offered are restored, that is enough.
//
// After NoteRestore returns, the death of the process counts. After durable
// returns nil, the death of the machine counts too: call it once before the program
// computes. The record of earlier deaths is safe at any time.
//
// A level that cannot be written to does not matter; where none can, the death does not count.
func (s *Store) NoteRestore(ctx context.Context, e Epoch) (durable func() error, err error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	t := s.readAttempts()
	first := len(t) == 0
	t[e]++
	if !first { // replacing a note that is durable by one that is not yet could lose both
		defer leave()
		n, err := s.writeAttempts(ctx, t)
		return func() error { return nil }, s.enough(n, err)
	}
	levels := s.working()
	synced := make(chan error, len(levels))
	var syncs sync.WaitGroup
	for _, l := range levels {
		durable, err := l.PlaceAttempts(t, s.opt.Rank)
		if err != nil {
			synced <- err
			continue
		}
		syncs.Go(func() { synced <- durable() })
	}
	go func() {
		syncs.Wait()
		close(synced)
		leave()
	}()
	return func() (err error) {
		n := 0
		for one := range synced {
			if err = errors.Join(err, one); one == nil {
				n++
			}
		}
		return s.enough(n, err)
	}, nil
}

// enough is the error of a note that n levels took: none if one has it, nor where no
// level can have it. The epoch is well, and an older one could not be noted either.
func (s *Store) enough(n int, err error) error {
	if err == nil || n == 0 && !refusesFiles(err) {
		return err
	}
	s.log.Warn("holdfast: cannot record the restore at a level", "err", err)
	if n == 0 {
		s.log.Warn("holdfast: restore recorded nowhere: a crash after it does not count against the epoch")
	}
	return nil
}

// refusesFiles says that a directory does not take a file, for its state or what is there.
func refusesFiles(err error) bool {
	return errors.Is(err, vfs.ErrUnsafe) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrExist) ||
		slices.ContainsFunc([]error{syscall.EISDIR, syscall.ENOTEMPTY, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS},
			func(e error) bool { return errors.Is(err, e) })
}

// NoteSurvival records that the program survived its restore: it has run for a
// while, has committed an epoch since, or ended by itself.
func (s *Store) NoteSurvival(ctx context.Context) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	_, err = s.writeAttempts(ctx, nil)
	return err
}

// WithdrawRestore records that a restore was given up before the program had its
// state, for example because of a damaged copy. Its end does not count against the
// epoch.
func (s *Store) WithdrawRestore(ctx context.Context, e Epoch) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	t := s.readAttempts()
	if t[e]--; t[e] <= 0 {
		delete(t, e)
	}
	n, err := s.writeAttempts(ctx, t)
	return s.enough(n, err)
}

// writeAttempts rewrites the restore attempts at every level of this rank, so that they
// survive what the epochs survive, and returns how many levels took them.
func (s *Store) writeAttempts(ctx context.Context, t format.RestoreAttempts) (n int, err error) {
	for _, l := range s.working() {
		if ctx.Err() != nil {
			return n, errors.Join(err, ctx.Err())
		}
		if werr := l.WriteAttempts(t, s.opt.Rank); werr != nil {
			err = errors.Join(err, werr)
			continue
		}
		n++
	}
	return n, err
}

// readAttempts merges what the levels say. What cannot be read is not counted: it
// only ever withholds an epoch. Nor is what lies at a level that is out: nobody could
// take it back.
func (s *Store) readAttempts() format.RestoreAttempts {
	t := format.RestoreAttempts{}
	for _, l := range s.working() {
		if l.told != nil {
			continue // rank 0 notes the attempts of all
		}
		one, err := l.ReadAttempts(s.opt.Rank)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			s.log.Warn("holdfast: earlier restore attempts unknown: their record cannot be read", "level",
				l.Name(), "err", err)
			continue
		}
		for e, n := range one {
			t[e] = max(t[e], n)
		}
	}
	return t
}
