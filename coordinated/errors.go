package coordinated

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// ExitRankLost is the exit code of a process that leaves because another rank of
// the job has died: the EX_TEMPFAIL of sysexits.h, "try again".
const ExitRankLost = 75

// Errors that a program branches on.
var (
	// ErrStop is returned by Point after a final checkpoint: the epoch is
	// committed, the program should return.
	ErrStop = errors.New("stopped after a checkpoint")
	// ErrEnded is the Err of an epoch that was requested after the last Point of all ranks: no checkpoint is taken of a
	// program that has ended.
	ErrEnded = persist.ErrEnded
	// ErrNotRestored is returned by Point before Restore was called: a restart
	// would lose the epoch it could have started from.
	ErrNotRestored = errors.New("call Restore before the first Point, on a first start too")
	// ErrRestored is returned, in a *ProtectError, by Protect after Restore: state that is protected later would be
	// missing from the restored state.
	ErrRestored = errors.New("protect everything before Restore")
	// ErrClosed is returned by a Checkpointer that was closed.
	ErrClosed = agent.ErrClosed
	// ErrNotDue is returned by Wait if the epoch does not go to the level, because of Options.GlobalEvery or
	// RedundancyEvery.
	ErrNotDue = errors.New("the epoch is not due at that level")
	// ErrOff is returned by RequestStop if the program runs without checkpoints: see Options.Off.
	ErrOff = errors.New("the program runs without checkpoints, and nothing will stop it")
)

// errNoState is the error of a checkpoint that reaches a rank in Close whose Restore has failed, or was never called:
// its protected state is undefined.
var errNoState = errors.New("nothing has been restored, so there is no state to capture")

// errLeft is the reason for which no checkpoint is taken of a program in another process whose ranks come to points
// unequally often, and of which some have ended.
var errLeft = errors.New("this rank has ended, and others have not")

// ProtectError describes the mistake in one Protect call.
type ProtectError struct {
	Name string
	Type reflect.Type
	Why  string
	Err  error
}

// Error names the state, its type and why it cannot be protected.
func (e *ProtectError) Error() string {
	s := fmt.Sprintf("protect %q", e.Name)
	if e.Type != nil {
		s += fmt.Sprintf(" (%v)", e.Type)
	}
	if e.Err != nil {
		return s + ": " + e.Err.Error()
	}
	return s + ": " + e.Why
}

// Unwrap returns the cause.
func (e *ProtectError) Unwrap() error { return e.Err }

// MismatchError reports that under one name the checkpoint and the program have
// different types or sizes.
type MismatchError struct {
	Name  string
	Saved string // type and size in the checkpoint, "" if it has nothing of that name
	Now   string // type and size in the program, "" if it protects nothing of that name
}

// Error describes the contents of the checkpoint and of the program under the name, and the remedy.
func (e *MismatchError) Error() string {
	switch {
	case e.Saved == "":
		return fmt.Sprintf("restore %q (%s): the checkpoint has nothing of that name; protect the names that the "+
			"checkpoint has, or start in a new directory", e.Name, e.Now)
	case e.Now == "":
		return fmt.Sprintf("restore %q (%s): the program does not protect it; protect the names that the checkpoint "+
			"has, or start in a new directory", e.Name, e.Saved)
	}
	return fmt.Sprintf("restore %q: the checkpoint has %s, the program %s", e.Name, e.Saved, e.Now)
}

// RestoreError has the reasons for which no epoch was restored although there are some for all ranks.
type RestoreError struct {
	// Mismatch: the checkpoints are intact, but the program protects different
	// state.
	Mismatch bool
	// Length: arrays whose number of elements is another are all that differs. Only a program in C, C++, Fortran or
	// Python has arrays that do not take the length of the checkpoint.
	Length bool
	// Device: a device is the cause, not the checkpoints. It was lost (then no older one is tried), has too little
	// memory, or lacks a feature that they need.
	Device bool
	// Undefined has the names of protected state that Restore has changed, on any rank: the program's own decoding
	// failed, or there was no memory to keep the contents from before.
	Undefined []string
	Err       error // why each epoch was not restored, newest first

	stop   bool          // an older epoch would not overwrite all that this one has left
	chosen storage.Epoch // has other lengths than the newest one, which could not be restored; 0: none
}

func (e *RestoreError) add(err error) {
	if one, ok := errors.AsType[*RestoreError](err); ok {
		e.Mismatch, e.Device, e.stop = e.Mismatch || one.Mismatch, e.Device || one.Device, e.stop || one.stop
		e.Length = one.Length
		e.Undefined = append(e.Undefined, one.Undefined...)
		err = one.Err
	}
	e.Err = errors.Join(e.Err, err)
}

// Error gives the reason for each epoch that was tried, and the way out.
func (e *RestoreError) Error() string {
	s := "no epoch could be restored; run 'holdfast verify' on the directories, or start over with " +
		"HOLDFAST_FRESH=1: "
	switch {
	case e.Length && e.chosen != 0:
		s = fmt.Sprintf("epoch %d is intact, but the program protects other numbers of elements than it "+
			"has; set HOLDFAST_EPOCH=%[1]d, so that hf_saved tells those of this epoch, or %s: ", e.chosen,
			program.ToFollow)
	case e.Length:
		s = "the checkpoint is intact, but the program protects another number of elements than it has; " +
			"protect as many, or " + program.ToFollow + ": "
	case errors.As(e.Err, new(*CountError)):
		s = "the checkpoints are intact, but this job has another number of ranks: "
	case e.Mismatch:
		s = "the checkpoints are intact, but this program protects different state; start the program " +
			"that wrote them, or use another directory: "
	case e.Device:
		s = "no epoch could be restored, because of a device, not of the checkpoints; start the program " +
			"again, on a device that can hold its state: "
	}
	s += e.Err.Error()
	if len(e.Undefined) > 0 {
		s += fmt.Sprintf("; contents undefined after the attempt: %q", e.Undefined)
	}
	return s
}

// Unwrap returns the cause.
func (e *RestoreError) Unwrap() error { return e.Err }

// NoCommonEpochError reports that checkpoints exist, but no epoch that every rank can
// read. Starting over would abandon them, so the job does that only with
// Options.Fresh.
type NoCommonEpochError struct {
	Have map[int][]storage.Epoch // by rank, newest first
	Size int
	// Unreadable were committed, and some rank can have them from nowhere; newest
	// first.
	Unreadable []storage.Epoch
	// Nodes of earlier runs that this one is not on and that have, or had, shards of
	// the newest epoch.
	Nodes []string

	elastic bool // the epochs may be of another number of ranks
}

// Error says which ranks find checkpoints and which find none, and which nodes may have the rest.
func (e *NoCommonEpochError) Error() string {
	s := e.text()
	if len(e.Nodes) > 0 {
		s += fmt.Sprintf("; the missing shards may be on node(s) %s, which this run does not use", names(e.Nodes))
	}
	if e.elastic && len(e.Have) > 0 {
		s += fmt.Sprintf("; of an epoch of another number of ranks, rank R looks for the shards of the ranks R, R+%d "+
			"and so on: 'holdfast show' says on which nodes they were written", e.Size)
	}
	return s
}

// names writes a list of nodes, shortened.
func names(nodes []string) string {
	const most = 8
	if len(nodes) > most {
		return fmt.Sprintf("%s and %d more", slurm.FoldNodes(nodes[:most]), len(nodes)-most)
	}
	return slurm.FoldNodes(nodes)
}

func (e *NoCommonEpochError) text() string {
	var with, without []int
	for r := range e.Size {
		if len(e.Have[r]) > 0 {
			with = append(with, r)
		} else {
			without = append(without, r)
		}
	}
	if len(with) == 0 {
		return fmt.Sprintf("restore: no rank can read the committed epoch(s) %v; run 'holdfast verify' on the "+
			"directories, or start over with HOLDFAST_FRESH=1", e.Unreadable)
	}
	if len(without) == 0 {
		return "restore: every rank finds checkpoints, but no epoch is readable on all ranks; run 'holdfast verify' " +
			"on the directories, or start over with HOLDFAST_FRESH=1"
	}
	return fmt.Sprintf("restore: rank(s) %s find checkpoints, rank(s) %s find none; give all ranks the directories "+
		"that they wrote to, or start over with HOLDFAST_FRESH=1", outcome.Ranks(with), outcome.Ranks(without))
}

// SkippedEpochsError reports that Restore skips these epochs, because the program crashed
// repeatedly right after restoring them. Something in them may be the cause.
type SkippedEpochsError struct {
	Epochs []storage.Epoch // newest first
}

// Error names the skipped epochs, and the settings that restore one of them or start over.
func (e *SkippedEpochsError) Error() string {
	return fmt.Sprintf("restore: epoch(s) %v skipped after at least %d crashes within a minute of restoring them; "+
		"find out why the program crashed; HOLDFAST_EPOCH=%d restores the newest of them nevertheless, "+
		"HOLDFAST_FRESH=1 starts over",
		e.Epochs, vote.MaxDeaths, e.Epochs[0])
}

// RanksError reports that an operation that all ranks take part in failed on some.
// It unwraps to the error of this rank, if it is one of them. It has the operation, Op,
// the ranks that Failed, in order, and Err, this rank's own error or nil.
type RanksError = outcome.RanksError

// RankFailure is one rank's report: its Rank and a Text.
type RankFailure = outcome.RankFailure

// HungError reports that an operation at a level made no progress for Options.WriteTimeout, or within the time left for
// a final checkpoint: a disk or file server does not answer. Its fields are the operation (What), its Level, the time
// it Waited, and Skipped if it was skipped because earlier operations hang.
type HungError = persist.HungError

// GraceError reports that a final checkpoint was not copied to all levels because the process would have been killed
// first. Its fields are the Epoch, the Levels at which it is committed, and the Level that it did not reach. Need is
// the time it would take, Left the time there was. Behind is set if the previous epoch was still being copied, Err if
// the copy was tried and failed.
type GraceError = persist.GraceError

// LostError reports that another rank of the job has died or given up.
type LostError struct {
	Rank     int
	Node     string
	Noticed  int // rank that noticed
	Observed string
	// InRestore: the rank that tells was in Restore, or before it.
	InRestore bool

	none bool // no epoch was committed when it was noticed
}

// Error names the lost rank, the rank that noticed, and the epoch from which the job continues.
func (e *LostError) Error() string {
	if why, ok := agent.Deadlocked(e.Observed); ok {
		return "ranks are deadlocked, and the job ends: " + why
	}
	next := "restart the job, it continues from the newest committed epoch"
	switch {
	case e.InRestore:
		next = "restart the job, which was in Restore; it retries the same epoch, and after two such deaths an older " +
			"one, if there is one"
	case e.none:
		next = "no epoch was committed by then"
	}
	return fmt.Sprintf("rank %d on node %s is lost (noticed by rank %d: %s); %s", e.Rank, e.Node, e.Noticed, e.Observed,
		next)
}

// TimeoutError reports that an epoch was given up because ranks did not reach a
// Point in time, and which.
type TimeoutError struct {
	Epoch    storage.Epoch
	Culprits []Culprit // in order of rank
}

// Culprit is a rank that was not parked when an epoch was given up.
type Culprit struct {
	Rank  int
	State string // call, communicator, peers, tag, time in it, file and line
}

// Error names the ranks that reached no Point, each with its call.
func (e *TimeoutError) Error() string {
	if len(e.Culprits) == 0 {
		return fmt.Sprintf("epoch %d given up: all ranks were at a Point but did not agree within cut_timeout",
			e.Epoch)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "epoch %d given up: %d rank(s) reached no Point within cut_timeout", e.Epoch, len(e.Culprits))
	for _, c := range e.Culprits {
		fmt.Fprintf(&b, "; rank %d: %s", c.Rank, c.State)
	}
	return b.String()
}
