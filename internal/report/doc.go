// Package report merges the event logs of a job into one account: when its ranks computed, stood still for checkpoints,
// restarted or were not there at all. It writes it as a page and as JSON.
//
// # Terms
//
// A track is a row of stretches of time on one rank that do not overlap: the main thread has one, background writes
// have others. Times of the account are microseconds since the first start, by the clock of the node of rank 0, to
// which those of the other nodes are brought (see clock.go).
//
// Work is kept if the newest run has it: a run that restores an epoch goes on from its cut; work after that cut, or in
// runs in between, is lost.
package report
