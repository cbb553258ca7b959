// Package events writes and reads the event log of a job: the actions of each rank with their times, for `holdfast
// report`. docs/FORMAT.md describes the files.
//
// # Terms
//
// A run is one start of a job. A Log has the events of one rank in one run: lines of JSON, each an Event. The ranks of
// a node can have one file together, which the first of them writes (Options.Node). A span is an event that lasts. It
// is logged when it ends, with its duration. If it may last long, its beginning is logged as well, so that the log of a
// killed process shows its last action.
//
// # Promises
//
// Emit never waits for a disk and never fails. Events that cannot be written are dropped, and the log has their number.
// A Log holds no more than Options.MaxBytes; older parts go first. A rank whose node's first rank is gone goes on in a
// file of its own. Lines are complete but for the last one of a process that died. Nothing is synced before Close, so a
// node that dies takes its last seconds with it.
//
// The reader trusts no line: it bounds their length, number and values, and skips and counts lines that it cannot use.
//
// # Calls
//
// All calls are local. Times in lines are integers of nanoseconds, and sizes are bytes. An Emit costs a line of some
// hundred bytes in memory; a goroutine of the Log writes it.
//
// # Concurrency
//
// A Log may be used from several goroutines.
package events
