// Package arrays captures and restores the state that any number of ranks can restore: global arrays, whether their
// division changes or not, replicated values, and sets of items with keys. It adds them to the per-rank state of
// package capture, and describes them in each shard.
//
// The ranks agree on their declarations before a checkpoint and before a restore. This package makes and reads their
// reports, and never speaks to another rank.
package arrays
