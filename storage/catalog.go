package storage

import (
	"context"
	"maps"

	"github.com/holdfast-hpc/holdfast/storage/internal/catalog"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Candidate is an epoch that this rank can restore.
//
//	Epoch  Epoch
//	ID     [16]byte // identifies what was committed; ranks must agree on it too
//	Levels []string // nearest first
//	Deaths int      // how often the program died right after restoring it
//	Size   int      // of how many ranks it is; see Options.Elastic
type Candidate = catalog.Candidate

// LevelState describes an epoch at one level, for one rank.
//
//	Epoch Epoch
//	Level string
//	ID    [16]byte  // identifies what was committed
//	Size  int       // of how many ranks it is
//	Shard ShardInfo // of this rank; valid when Err is nil and Size is that of the job
//	Err   error     // why the level does not serve; ErrNotCommitted: no manifest
type LevelState = catalog.LevelState

// Overview has rank 0's findings in the directories that all ranks share, for one rank; see Options.Collective. It
// holds for as long as no rank has committed an epoch since.
//
//	Common []byte // the same for all ranks
//	Own    []byte // this rank's
type Overview = catalog.Overview

// History is the job's past as the levels record it.
//
//	Epoch    Epoch    // one that all ranks had committed; 0: none yet
//	Level    string   // where
//	Nodes    []string // of the run that did
//	NoRecord bool     // a directory has epochs and no record of them: an older build wrote them
type History = catalog.History

// Candidates lists the committed epochs whose shard of this rank is readable, newest first, by cheap checks: the
// manifest, the length of the shard and its footer. Reading may still find damage. The caller skips those with too many
// Deaths (see NoteRestore).
//
// Unreadable lists, newest first, the epochs that are committed at some level, or have a damaged manifest, and that
// this rank can read from no level. Skipping one of them loses work, so the caller reports it.
//
// A *VersionError says that a later release of Holdfast has written an epoch newer than the newest of the list: this
// one would go back behind it. The lists are valid nevertheless.
//
// All ranks call it, after Learn, and agree on one of the common candidates. It lists each directory, and reads the
// manifests and the footers of shards.
func (s *Store) Candidates(ctx context.Context) (list []Candidate, unreadable []Epoch, err error) {
	leave, err := s.enter()
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	return s.catalog.Candidates(ctx, s.opt.Memory.matches)
}

// Survey describes every epoch found at any level, newest epoch first and levels nearest first. Directories of other
// ranks count as far as Learn knows them. It costs what Candidates costs.
func (s *Store) Survey(ctx context.Context) ([]LevelState, error) {
	return entered(s, func() ([]LevelState, error) { return s.catalog.Survey(ctx, s.opt.Memory.matches) })
}

// Pending lists the epochs that are committed at from, as far as this rank knows, and newer than the newest at to,
// oldest first. A job that died in the middle of a flush left them. The next one can Flush and Commit those that all
// ranks have with the same ID. All ranks call it. It costs what Candidates costs.
func (s *Store) Pending(ctx context.Context, from, to string) ([]Candidate, error) {
	return entered(s, func() ([]Candidate, error) {
		last, err := s.at(to)
		if err != nil {
			return nil, err
		}
		first, err := s.at(from)
		if err != nil {
			return nil, err
		}
		return s.catalog.Pending(ctx, first.Level, last.Level)
	})
}

// Choose fixes the contents of an epoch, by the ID of a Candidate that all ranks have. From then on a directory with
// other contents under the number counts as damaged: it is of another run with the job's name, say, and came back with
// its node. All ranks call it for the same contents. It reads no file.
func (s *Store) Choose(e Epoch, id [16]byte) { s.catalog.Contents.Set(e, id) }

// Highest returns the greatest epoch number that any level of this rank has seen, committed or not; 0 when there is
// none. The next epoch must be greater than this number of every rank. Numbers that no job counts up to are passed
// over: somebody made such a directory by hand, and epochs that follow it would have names that are none. All ranks
// call it, and take the greatest result. It costs a listing of each directory.
func (s *Store) Highest(ctx context.Context) (Epoch, error) {
	return entered(s, func() (Epoch, error) { return s.catalog.Highest(ctx) })
}

// Holdings describes the contents of this rank's directories, for the other ranks to Learn. Directories that all ranks
// see, of the level global, are left out. All ranks call it and exchange the results. It lists the directories of this
// rank and reads the manifests there.
func (s *Store) Holdings(ctx context.Context) ([]byte, error) {
	return entered(s, func() ([]byte, error) { return s.catalog.Holdings(ctx) })
}

// Learn records the contents of another rank's directories, so that Candidates and Fetch can use them. It replaces
// earlier knowledge about that rank. Damaged bytes are an error. It reads no file.
func (s *Store) Learn(from int, holdings []byte) error {
	if from == s.opt.Rank {
		return nil
	}
	return s.catalog.Others.Learn(from, holdings)
}

// Overview looks once at the directories that all ranks share. Rank 0 calls it after Open and gives every rank its
// Overview: common is for all, own makes the part of one rank. The bytes are the caller's.
func (s *Store) Overview(ctx context.Context) (common []byte, own func(rank int) []byte, err error) {
	leave, err := s.enter()
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	return s.catalog.Overview(ctx)
}

// Committed records that all ranks have committed an epoch at a level. Later shards of this rank then refer to its
// chunks, even if the ranks share the directory and another rank wrote the manifest. All ranks call it after the vote.
func (s *Store) Committed(e Epoch, level string) error {
	return s.vote(level, func(l *levelState) { s.committed(l, e, true) })
}

// vote notes the outcome of a vote on the epochs at a level.
func (s *Store) vote(level string, note func(l *levelState)) error {
	l, err := s.at(level)
	if err == nil {
		s.catalog.Vote()
		note(l)
	}
	return err
}

// Withdraw notes that a vote has failed an epoch which this rank may have committed at a level: it does not count, and
// no later shard refers to it. All ranks call it after the vote. It removes no file: see Discard.
func (s *Store) Withdraw(e Epoch, level string) error {
	return s.vote(level, func(l *levelState) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.Withdraw(e)
		maps.DeleteFunc(l.base, func(_ int, b *format.Index) bool { return b.Epoch == e })
		delete(l.puts, e)
		delete(l.bases.indices, e)
		s.refreshBases(l)
	})
}

// refreshBases makes the next shard whole after an epoch has failed at a level where not
// all ranks look whether the epochs that they refer to are still there: they may have gone.
// The caller holds l.mu.
func (s *Store) refreshBases(l *levelState) {
	if s.opt.Collective && l.Traits().Shared {
		l.Forget()
		clear(l.base)
	}
}

// Agree records which epochs all ranks have at a level, for Prune. All ranks call it with the same epochs, those that
// Present lists on each.
func (s *Store) Agree(level string, epochs []Epoch) error {
	return s.vote(level, func(l *levelState) { l.AgreeOn(epochs) })
}

// Present lists the epochs whose manifests can be read in this rank's directory of a level, newest first, and no more
// of them than the keep rules count. The ranks exchange the lists and Agree on the common epochs.
func (s *Store) Present(ctx context.Context, name string) ([]Epoch, error) {
	return entered(s, func() ([]Epoch, error) {
		l, err := s.at(name)
		if err != nil {
			return nil, err
		}
		return s.catalog.Present(ctx, l.Level)
	})
}

// Retain keeps Prune away from an epoch, at all levels, and from the earlier ones
// that hold chunks of it, until release is called. Ranks that read or write in
// each other's directories, as in a Flush or a Rebuild, all Retain it
// before and release it when all are done.
func (s *Store) Retain(ctx context.Context, e Epoch) (release func()) {
	return s.catalog.Retain(ctx, e)
}

// History collects the records of this rank's levels. It fails with a *DirError if no level has a record of an epoch
// and a level without epochs has a damaged record: that may have named some.
func (s *Store) History(ctx context.Context) (History, error) {
	return entered(s, func() (History, error) { return s.catalog.History(ctx) })
}

// RecordHistory records, at all levels that this rank can write to, that all ranks have committed an epoch. All ranks
// call it; at the global level rank 0 writes for all. The error joins the levels that did not take the record; the
// others have it. Each record is one small file that is synced.
func (s *Store) RecordHistory(ctx context.Context, e Epoch, level string) error {
	return s.within(func() error { return s.catalog.RecordHistory(ctx, e, level) })
}

// NoteRestore records that the program is about to restore an epoch. If the program
// dies before NoteSurvival, Candidates counts that among the Deaths of the epoch,
// which may be the cause. One rank does this for all, the same in every run; since only epochs that
// all ranks are offered are restored, that is enough.
//
// After NoteRestore returns, the death of the process counts. After durable
// returns nil, the death of the machine counts too: call it once before the program
// computes. The record of earlier deaths is safe at any time.
//
// A level that cannot be written to does not matter; if none can, the death does not count.
func (s *Store) NoteRestore(ctx context.Context, e Epoch) (durable func() error, err error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	return s.catalog.NoteRestore(ctx, e, leave)
}

// NoteSurvival records that the program survived its restore: it has run for some time, has committed an epoch since,
// or ended by itself. The rank that called NoteRestore calls it.
func (s *Store) NoteSurvival(ctx context.Context) error {
	return s.within(func() error { return s.catalog.NoteSurvival(ctx) })
}

// WithdrawRestore records that a restore was given up before the program had its state, for example because of a
// damaged copy. Its end does not count against the epoch. The rank that called NoteRestore calls it.
func (s *Store) WithdrawRestore(ctx context.Context, e Epoch) error {
	return s.within(func() error { return s.catalog.WithdrawRestore(ctx, e) })
}
