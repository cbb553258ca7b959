package storage

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// ErrCorrupt marks bytes that were read back but are not what was written.
var ErrCorrupt = format.ErrCorrupt

// CorruptError says where such bytes were found. It matches ErrCorrupt.
type CorruptError = format.CorruptError

// VersionError reports a record of a format version that this build does not know. The remedy is a newer build.
type VersionError = format.VersionError

// LimitError reports something larger than the format can hold. Nothing was written.
type LimitError = format.LimitError

// ErrNotCommitted marks an epoch that has no manifest at the level asked for,
// so that it does not exist there.
var ErrNotCommitted = errors.New("epoch is not committed")

// ErrCommitted marks an attempt to replace or discard a committed epoch.
var ErrCommitted = errors.New("epoch is committed already")

// ErrNoSection marks a section name that the shard does not have.
var ErrNoSection = shard.ErrNoSection

// ErrClosed marks the use of a Store or Shard after Close.
var ErrClosed = shard.ErrClosed

// ShardError reports what failed on which shard.
type ShardError struct {
	Op    string // "put", "commit", "fetch", "flush", "discard" or "verify"
	Epoch Epoch
	Rank  int
	Level string
	Err   error
}

func (e *ShardError) Error() string {
	return fmt.Sprintf("%s shard epoch=%d rank=%d level=%s: %v", e.Op, e.Epoch, e.Rank, e.Level, e.Err)
}

func (e *ShardError) Unwrap() error { return e.Err }

// OptionError reports a field of Options that cannot be used.
type OptionError struct {
	Field  string
	Reason string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("storage option %s: %s", e.Field, e.Reason)
}

// DirError reports a level's directory that cannot be used.
type DirError struct {
	Level  string // empty if it is not known
	Dir    string
	Remedy string
	Err    error
}

func (e *DirError) Error() string {
	level := e.Level
	if level != "" {
		level = "level " + level + " "
	}
	return fmt.Sprintf("%sdirectory %s cannot be used: %v (%s)", level, e.Dir, e.Err, e.Remedy)
}

func (e *DirError) Unwrap() error { return e.Err }

// MarkerError says that the file which names a directory's job is damaged or
// missing, and that the manifests there say the same of it. The next run of the
// job writes it again.
type MarkerError struct {
	Dir string
	Err error
}

func (e *MarkerError) Error() string {
	return fmt.Sprintf("directory %s: %s cannot be used (%v); the job is known from the manifests, and its next run "+
		"writes the file again", e.Dir, format.MarkerName, e.Err)
}

func (e *MarkerError) Unwrap() error { return e.Err }

// JobError reports a directory that holds the checkpoints of another job.
type JobError struct {
	Level      string
	Dir        string
	Have, Want string // job names: in the directory, and of this job
}

func (e *JobError) Error() string {
	return fmt.Sprintf("level %s directory %s holds checkpoints of job %q, this job is %q: "+
		"give each job its own directory, or set the same job name to go on from it",
		e.Level, e.Dir, e.Have, e.Want)
}

// SizeError reports checkpoints that were written by another number of ranks.
type SizeError struct {
	Level      string
	Dir        string
	Have, Want int // ranks: of the checkpoints, and of this job
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("level %s directory %s holds checkpoints of %d ranks, this job has %d: "+
		"start it with %d ranks, or give it an empty directory to begin anew",
		e.Level, e.Dir, e.Have, e.Want, e.Have)
}

// SpaceError reports a level without room. It fails one epoch and no other.
type SpaceError struct {
	Level string
	Dir   string
	Need  int64 // bytes that were still to be written
	Free  int64 // bytes that are free
}

func (e *SpaceError) Error() string {
	missing := fmt.Sprintf("%d free, %d missing", e.Free, e.Missing())
	if e.Missing() == 0 {
		missing = fmt.Sprintf("which others had taken, %d free again", e.Free)
	}
	return fmt.Sprintf("level %s directory %s is full: %d bytes needed, %s: keep fewer epochs there or give it "+
		"more room",
		e.Level, e.Dir, e.Need, missing)
}

// Missing is the number of bytes by which the level is too small.
func (e *SpaceError) Missing() int64 { return max(e.Need-e.Free, 0) }
