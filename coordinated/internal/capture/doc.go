// Package capture copies what a program has protected into memory that was mapped
// beforehand, and reads it back from a shard. It knows the sections of a shard and the
// forms that protected things have, and nothing of the other ranks. Package arrays builds on it.
//
// A capture leaves a Snapshot, which is leased to those who write it; the next capture
// takes the memory back. An Attempt brings a shard into the program in steps,
// and can take every one of them back.
package capture
