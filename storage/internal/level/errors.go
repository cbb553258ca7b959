package level

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// ErrOtherLevel marks a directory that another level of the job uses.
var ErrOtherLevel = errors.New("it is the directory of another level")

// ErrNotCommitted marks an epoch that has no manifest at the level asked for,
// so that it does not exist there.
var ErrNotCommitted = errors.New("epoch is not committed")

// ErrCommitted marks an attempt to replace or discard a committed epoch.
var ErrCommitted = errors.New("epoch is committed already")

// OtherContentsError reports a manifest that commits other contents under the number of an epoch than the ranks have
// agreed on: of another run with the same name, say. It matches ErrCorrupt.
type OtherContentsError struct {
	File  string
	Epoch format.Epoch
}

// Error names the manifest and its epoch.
func (e *OtherContentsError) Error() string {
	return fmt.Sprintf("%s commits something other than epoch %d of this job: it is of another run with the same "+
		"name, or of another attempt", e.File, e.Epoch)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *OtherContentsError) Is(target error) bool { return target == format.ErrCorrupt }

// OtherRunError reports an epoch in a directory of a run that is not its own: somebody has copied it there, or the run
// has started over in the directories of the other one.
type OtherRunError struct {
	File     string           // of the manifest
	Manifest *format.Manifest // as read
	Want     format.Identity  // of the run that the directory belongs to
}

// Error names both runs.
func (e *OtherRunError) Error() string {
	return fmt.Sprintf("%s: the epoch belongs to %s, and the directory to %s", e.File, RunText(e.Manifest.Run),
		RunText(e.Want))
}

// Replaced reports whether the epoch is of the run that the directory's run has replaced, so that it is kept by the
// same rules as the directory's own.
func (e *OtherRunError) Replaced() bool {
	return e.Want.Replaced(e.Manifest.Run) || e.Manifest.Run.IsZero()
}

// OfOtherRun reports whether err is about an epoch of another run.
func OfOtherRun(err error) bool {
	return errors.As(err, new(*OtherRunError))
}

// RunError reports a level's directory with the epochs of another run than the other directories have.
type RunError struct {
	Level, Dir string
	Have       format.Identity // of the directory
	Want       format.Identity // of the others
	Other      string          // the first of these; empty: it is not known
	Remedy     string
}

// Error names the directories, both runs and the remedy.
func (e *RunError) Error() string {
	other := "the other directories belong"
	if e.Other != "" {
		other = e.Other + " belongs"
	}
	return fmt.Sprintf("level %s %s belongs to %s, and %s to %s: %s", e.Level, kindOf(e.Dir), RunText(e.Have), other,
		RunText(e.Want), e.Remedy)
}

// DirError reports a level's directory that cannot be used.
type DirError struct {
	Level  string // empty if it is not known
	Dir    string
	Remedy string
	Err    error
}

// Error names the directory, the cause and the remedy.
func (e *DirError) Error() string {
	level := e.Level
	if level != "" {
		level = "level " + level + " "
	}
	if e.Remedy == "" { // Err has it
		return fmt.Sprintf("%s%s cannot be used: %v", level, kindOf(e.Dir), e.Err)
	}
	return fmt.Sprintf("%s%s cannot be used: %v (%s)", level, kindOf(e.Dir), e.Err, e.Remedy)
}

// Unwrap returns the cause.
func (e *DirError) Unwrap() error { return e.Err }

// kindOf names a place for messages.
func kindOf(path string) string {
	if IsStore(path) {
		return "object store " + path
	}
	if _, url := schemeOf(path); url {
		return path
	}
	return "directory " + path
}

// JobError reports a directory that holds the checkpoints of another job.
type JobError struct {
	Level      string
	Dir        string
	Have, Want string // job names: in the directory, and of this job
	Other      string // what has Want, if no job is started: another directory
}

// Error names the directory and both jobs.
func (e *JobError) Error() string {
	if e.Other != "" {
		return fmt.Sprintf("level %s %s holds checkpoints of job %q, %s of job %q: give the directories of one job",
			e.Level, kindOf(e.Dir), e.Have, e.Other, e.Want)
	}
	return fmt.Sprintf("level %s %s holds checkpoints of job %q, this job is %q: "+
		"give each job its own directory, or use that job name (HOLDFAST_JOB) to continue from it",
		e.Level, kindOf(e.Dir), e.Have, e.Want)
}

// SizeError reports checkpoints that were written by another number of ranks.
type SizeError struct {
	Level      string
	Dir        string
	Have, Want int    // ranks: of the checkpoints, and of this job
	Other      string // what has Want, if no job is started: another directory
	Elastic    string // how a program declares that it is elastic, in its language; empty: in each
}

// Error gives both numbers of ranks.
func (e *SizeError) Error() string {
	if e.Other != "" {
		return fmt.Sprintf("level %s %s holds checkpoints of %s, %s of %s: give the directories of one job", e.Level,
			kindOf(e.Dir), units.Count(e.Have, "rank"), e.Other, units.Count(e.Want, "rank"))
	}
	have := units.Count(e.Have, "rank")
	return fmt.Sprintf("level %s %s holds checkpoints of %s, this job has %d: start it with %s, or any number if it "+
		"is elastic (%s), or give it an empty directory to start over", e.Level, kindOf(e.Dir), have, e.Want, have,
		cmp.Or(e.Elastic, "hf_elastic, elastic=True in Python, Options.Elastic in Go"))
}

// SpaceError reports a level without room. It fails one epoch and no other.
type SpaceError struct {
	Level string
	Dir   string
	Need  int64 // bytes that were still to be written
	Free  int64 // bytes that are free
}

// Error has the bytes that are needed, and those that are missing.
func (e *SpaceError) Error() string {
	missing := fmt.Sprintf("%d free, %d missing", e.Free, e.Missing())
	if e.Missing() == 0 {
		missing = fmt.Sprintf("taken by others at the time, %d free now", e.Free)
	}
	return fmt.Sprintf("level %s %s is full: %d bytes needed, %s: make room there, or keep fewer epochs "+
		"(HOLDFAST_KEEP)",
		e.Level, kindOf(e.Dir), e.Need, missing)
}

// Missing returns the number of bytes by which the level is too small.
func (e *SpaceError) Missing() int64 { return max(e.Need-e.Free, 0) }

// Absent reports whether err means "not here" and not "damaged".
func Absent(err error) bool {
	return errors.Is(err, ErrNotCommitted) || errors.Is(err, fs.ErrNotExist)
}

// BusyError reports a level's directory that another run of the job uses now:
// the two would overwrite each other's epochs.
type BusyError struct {
	Level, Dir string
	Node       string // of the other run's process that owns the directory
	PID        int
}

// Error names the directory, and the process that uses it.
func (e *BusyError) Error() string {
	return fmt.Sprintf("level %s %s is in use by another run of this job: process %d on node %s; "+
		"end that run first, or use another directory", e.Level, kindOf(e.Dir), e.PID, e.Node)
}

// OptionError reports a field of Options that cannot be used.
type OptionError struct {
	Field  string
	Reason string
}

// Error names the field and its error.
func (e *OptionError) Error() string {
	return fmt.Sprintf("storage option %s: %s", e.Field, e.Reason)
}
