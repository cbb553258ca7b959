// Package storage keeps the shards of checkpoints on levels with different failure
// domains: it commits epochs, flushes them to outer levels and fetches them back.
//
// # Terms
//
// An epoch is the number of one global checkpoint. A shard holds one rank's data of an epoch: named sections, cut into
// chunks. A manifest is the record that commits an epoch; it names the shards of all ranks. A level is a tier of
// storage with its own failure domain; an epoch may be at several:
//
//   - local: a directory of the node; survives the program
//   - partner: copies on other nodes; survives as many nodes as there are copies
//   - parity: Reed-Solomon over groups of nodes; survives any m nodes of a group
//   - global: a directory that all nodes see; survives the nodes
//
// # Promises
//
// An epoch exists at a level if and only if its manifest is readable there, on
// the rank's own node or on another one; shards without a manifest are garbage.
// When Put returns nil the shard is durable under its final name; when Commit
// returns nil the epoch survives the loss of any process and of power.
//
// Nothing is handed out unverified: each chunk carries a CRC-32C of the bytes on
// the disk and an xxh3-128 of the original ones. Compressed bytes pass the first
// before they are unpacked, all bytes pass the second before they are used, and a
// bad chunk is fetched from the next level. An error at one epoch does not affect
// older epochs.
//
// With Options.Run a directory serves one run of the job at a time. Open refuses a second run while the first is alive
// on any node, and admits it once the first is dead.
//
// # Agreement
//
// A Store knows one rank. Between Put (or Flush) and Commit the caller has the
// ranks vote on whether all shards are durable. To restore, it has the ranks
// exchange their Holdings and then agree on an epoch from the Candidates of all.
// Through a Transport a Store uses the directories of other ranks as files; it
// never decides anything with them.
//
// # Calls
//
// All calls are local: none waits for another rank to make the same call, and none uses MPI. Some are of use only if
// all ranks make them, or one rank makes them for all; their comments say so. At the levels partner and parity a call
// uses the directories of other ranks, whose Stores are open meanwhile.
//
// Sizes and offsets are bytes, rates are bytes per second, times are time.Duration. Calls that read or write shards
// take as long as the disk does. They end early when their context does, with its error.
//
// An error of an epoch at a level is a *ShardError with the operation and the level. Its cause matches a sentinel, such
// as ErrCorrupt, or is a *DirError, *SpaceError or *VersionError. An unknown level is an *OptionError. After Close the
// error is ErrClosed, and after another run has taken a directory, a *BusyError. IsDamage tells damage from directories
// that cannot be reached.
//
// # Resources
//
// A Store writes at most three shards at a time, each through four buffers of
// 4 MiB, and serves other ranks through eight more. Copying between levels uses
// two goroutines, keeps each level's limit of bytes per second, and
// waits while a capture pauses it (PauseCopies). A run lock is rewritten once a second by one process
// per directory.
//
// # Concurrency
//
// A Store and a Shard may be shared by goroutines. Several ranks, each with its
// own Store in its own process, may share one directory.
//
// The bytes on the disk are described in docs/FORMAT.md.
package storage
