// Package redundancy knows who holds what of an epoch besides the rank that wrote it, and how it comes back: which
// ranks keep copies of a shard, which form a parity group, how rows are computed from shards and shards from rows, and
// what ranks tell each other of what they have. Where files lie and how they are opened it asks Places.
package redundancy
