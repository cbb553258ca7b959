// Package events writes and reads the event log of a job: what each rank did
// when, for `holdfast report`. docs/FORMAT.md describes the files.
//
// # Terms
//
// A run is one start of a job. A Log is what one rank writes in one run: lines
// of JSON, each an Event. The ranks of a node can have one file together, which the
// first of them writes (Options.Node). A span is an event that lasts; it is logged when it
// ends, with its duration, and at its begin too if it may last long, so that
// the log of a process that was killed says what it was doing.
//
// # Promises
//
// Emit never waits for a disk and never fails: what cannot be written is counted
// and dropped, and the log says how much that was. A Log holds no more than
// Options.MaxBytes; older parts go first. A rank whose node's first rank is gone goes
// on in a file of its own. Lines are complete but for the last
// one of a process that died. Nothing is synced, so a node that dies takes its
// last seconds with it.
//
// The reader trusts no line: it bounds their length, number and values, and
// skips and counts what it cannot use.
//
// # Concurrency
//
// A Log may be used from several goroutines.
package events
