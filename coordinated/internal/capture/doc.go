// Package capture copies the protected state of a program into memory that was mapped beforehand, and reads it back
// from a shard. It knows the sections of a shard and the forms of protected things, and nothing of the other ranks.
// Package arrays builds on it.
//
// A capture leaves a Snapshot, which is leased to its writers; the next capture takes the memory back. An Attempt
// brings a shard into the program in steps, and can undo all of them.
package capture
