// Package arrays captures and restores what any number of ranks can restore: arrays that the ranks share, whether their
// division changes or not, replicated values, and sets of items with keys. It adds them to what package capture has per
// rank, and describes in each shard what it holds of them.
//
// The ranks agree on what they declare before a checkpoint and before a restore. This package makes and reads what
// they say, and never speaks to another rank.
package arrays
