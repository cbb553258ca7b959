// Package coordinated takes checkpoints of an MPI program that computes on GPUs:
// all ranks agree on one moment, each captures what the program has protected, and
// the program continues while the bytes are written.
//
// # Terms
//
// A Point is a place in the program where its state is whole: what is protected
// there, and the messages on their way, are all that a restart needs. An epoch
// is one global checkpoint. The cut is the moment at which all ranks stand at a
// Point (package cut). Capturing copies the protected state into memory that is
// mapped beforehand; committing makes an epoch exist at a storage level.
//
// # Promises
//
// An epoch is restored on all ranks or on none. A failed checkpoint costs that
// epoch and nothing else: older epochs stay and the program continues. Errors name
// the rank and the remedy.
//
// Between checkpoints nothing is sent, polled or copied, except a heartbeat between
// neighbours in the control tree and, every five seconds, a look at the main thread
// and a line in the event log.
//
// # Concurrency
//
// A Checkpointer is used by the goroutine that calls MPI. Request, Wait and Stats may
// be called from any other.
//
// # Calls
//
// A call is local unless its comment says that it is collective: then all ranks call it, in the same order. Sizes are
// bytes and times are time.Duration unless a name says otherwise. Every error names the operation, its object and the
// remedy.
//
// # Rooms
//
// What a program calls is here, in the order of an epoch's life: checkpointer.go (Open), protect.go, restore.go,
// request.go, point.go, status.go, close.go. The rest is in rooms that do not know this package: internal/connect
// (the ranks find each other, and which directories they share), internal/trigger (what wants a checkpoint),
// internal/agent (speaks for this rank), internal/watch (what main threads do and wait for), internal/capture (what is
// protected per rank, and the memory that it is captured to), internal/arrays (what any number of ranks can restore),
// internal/vote (what ranks say, and what follows), internal/persist (operations at levels, turns, the time left),
// internal/outside (other processes). A room tells what it notices by functions that job.go, persist.go and status.go
// hand in.
//
// # Dead ranks
//
// MPI does not tell the survivors of a dead rank: their calls hang. The control
// plane does. A rank that learns of a loss leaves the process with exit code
// ExitRankLost through Options.OnLost, because its main thread may hang in MPI. A
// restart begins from the newest committed epoch.
package coordinated
