// Package checkpoints works on the directories and object stores of a job that need not run. It lists, verifies, reads,
// copies, flushes, prunes, repairs and pins epochs. The verbs of the tool holdfast are these calls. A program uses
// package storage.
//
// # Calls
//
// All calls are local: one process makes them for the whole job, and reads and writes the directories of all its ranks.
// Directories are paths that this process sees, or URLs of an object store. Sizes are bytes. Calls that read or write
// shards take as long as the disks do, and end early with the error of their context. Slices of directories are not
// kept.
//
// # Promises
//
// A View never writes. Calls that only read may run beside a job. Calls that write take the run lock of the directories
// first. They are refused while the job runs (*storage.BusyError); only PinEpoch and UnpinEpoch work beside it.
//
// A byte is handed out or copied only when it is the one that was committed. Of several directories each chunk comes
// from one that has it right, or is computed from parity. Whatever a crash leaves half done is not committed, and the
// next call completes it.
//
// Errors are those of package storage, such as *storage.BusyError, *storage.DirError and *storage.VersionError.
package checkpoints

import (
	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Epoch is the number of one global checkpoint; see storage.Epoch.
type Epoch = format.Epoch

// ShardInfo describes one rank's shard by a manifest; see storage.ShardInfo.
type ShardInfo = format.ShardInfo

// Shard is a rank's shard of a committed epoch, open for reading; see storage.Shard.
type Shard = fetch.Shard
