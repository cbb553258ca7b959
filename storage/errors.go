package storage

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// ErrCorrupt marks bytes that differ from the bytes that were written. Another level may have them: see
// checkpoints.Repair.
var ErrCorrupt = format.ErrCorrupt

// CorruptError says where such bytes were found. It matches ErrCorrupt.
//
//	File   string // path, as opened
//	Off    int64  // first byte of what was checked
//	Len    int64  // its length; 0 when unknown
//	Reason string
type CorruptError = format.CorruptError

// VersionError reports a record of a format version that this build does not know. The remedy is a newer build.
//
//	File  string
//	What  string // "shard", "manifest", ...
//	Have  int
//	Known int
type VersionError = format.VersionError

// ErrNotCommitted marks an epoch that has no manifest at the level asked for,
// so that it does not exist there.
var ErrNotCommitted = level.ErrNotCommitted

// ErrCommitted marks an attempt to replace or discard a committed epoch. Use the next epoch number.
var ErrCommitted = level.ErrCommitted

// DirError reports a level's directory that cannot be used.
//
//	Level  string // empty if it is not known
//	Dir    string
//	Remedy string
//	Err    error
type DirError = level.DirError

// JobError reports a directory that holds the checkpoints of another job.
//
//	Level      string
//	Dir        string
//	Have, Want string // job names: in the directory, and of this job
//	Other      string // what has Want, where no job is started: another directory
type JobError = level.JobError

// SizeError reports checkpoints that were written by another number of ranks.
//
//	Level      string
//	Dir        string
//	Have, Want int    // ranks: of the checkpoints, and of this job
//	Other      string // what has Want, where no job is started: another directory
//	Elastic    string // how a program says that it is elastic, in its language; empty: in each
type SizeError = level.SizeError

// SpaceError reports a level without room. It fails one epoch and no other.
//
//	Level string
//	Dir   string
//	Need  int64 // bytes that were still to be written
//	Free  int64 // bytes that are free
//
//	func Missing() int64
type SpaceError = level.SpaceError

// BusyError reports a level's directory that another run of the job uses now:
// the two would overwrite each other's epochs.
//
//	Level, Dir string
//	Node       string // where the other run's owner of the directory is
//	PID        int
type BusyError = level.BusyError

// ErrNoSection marks a section name that the shard does not have.
var ErrNoSection = shard.ErrNoSection

// ErrNoParity marks the use of LevelParity by a program that does not import package storage/parity. Its text is the
// line to add.
var ErrNoParity = redundancy.ErrNoImport

// ErrClosed marks the use of a Store or Shard after Close.
var ErrClosed = shard.ErrClosed

// ShardError reports what failed on which shard: Op ("put", "commit", "fetch", "flush", "discard" or "verify"), Epoch,
// Rank, Level, and Err, the cause.
type ShardError = fetch.ShardError

// OptionError reports a field of Options that cannot be used: Field, and the Reason.
type OptionError = level.OptionError

// IsDamage reports whether damaged or missing checkpoints are the cause of an error: ErrCorrupt, or a shard that no
// directory has. Any other error means that directories could not be read or written.
func IsDamage(err error) bool {
	var s *ShardError
	return errors.Is(err, ErrCorrupt) || errors.As(err, &s) && (level.Absent(err) || errors.Is(err, fetch.ErrNoMore))
}
