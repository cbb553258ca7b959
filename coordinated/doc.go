// Package coordinated takes checkpoints of an MPI program that computes on GPUs: all ranks agree on one moment, each
// captures its protected state, and the program continues while the bytes are written.
//
// # Terms
//
// A Point is a place in the program where its state is whole: a restart needs only the protected state there and the
// messages in flight. An epoch is one global checkpoint. The cut is the moment at which all ranks stand at a Point
// (package cut). Capturing copies the protected state into memory that is mapped beforehand; committing makes an epoch
// exist at a storage level.
//
// # Promises
//
// An epoch is restored on all ranks or on none. A failed checkpoint costs that
// epoch and nothing else: older epochs stay and the program continues. Errors name
// the rank and the remedy.
//
// Between checkpoints nothing is sent, polled or copied, with two exceptions: a heartbeat between neighbours in the
// control tree, and every five seconds a look at the main thread and a line in the event log.
//
// # Concurrency
//
// A Checkpointer is used by the goroutine that calls MPI. Request, RequestStop, Wait and Stats may be called from any
// other.
//
// # Calls
//
// A call is local unless its comment says that it is collective: then all ranks call it, in the same order. Sizes are
// bytes and times are time.Duration unless a name says otherwise. Every error names the operation, its object and the
// remedy. After Close, Point, Restore and Request return ErrClosed. If another rank is lost and Options.OnLost returns,
// a call that waits returns a *LostError.
//
// # Rooms
//
// The calls of a program are here, in the order of an epoch's life: checkpointer.go (Open), protect.go, restore.go,
// job.go (Request), point.go, persist.go (Wait), close.go. The rest is in packages that do not know this one.
// internal/connect: the ranks find each other and the directories that they share. internal/trigger: requests for
// checkpoints. internal/agent: speaks for this rank. internal/watch: the calls that main threads are in.
// internal/capture: protected state of a rank, and the memory of captures. internal/arrays: state that any number of
// ranks can restore. internal/vote: votes and their outcomes. internal/persist: operations at levels, turns, the time
// left. internal/outside: other processes. These packages report by functions that job.go, persist.go and status.go
// hand in.
//
// # Dead ranks
//
// MPI does not tell the survivors of a dead rank: their calls hang. The control
// plane does. A rank that learns of a loss leaves the process with exit code
// ExitRankLost through Options.OnLost, because its main thread may hang in MPI. A
// restart begins from the newest committed epoch.
package coordinated
