// Package mpiwrap is MPI for Go programs that may be checkpointed at any moment.
//
// It covers point-to-point messages, collectives, communicators and one-sided
// windows over a real MPI library found at run time, Open MPI or MPICH: one
// binary runs under both, and building it needs neither. What it adds is what a
// checkpointer needs to know: it counts the messages between each pair of ranks
// and the collectives of each communicator, publishes what the rank is blocked
// on, and keeps messages that were drained from the network in a mailbox, where
// every receive looks first.
//
// # Terms
//
// A communicator (Comm) is an ordered set of ranks with its own message space.
// To drain is to receive everything in flight; drained messages wait in the
// mailbox of their communicator until the program receives them. Peers, sources
// and roots are ranks of the communicator in the call; worldRank is said where
// ranks of the world are meant.
//
// # Promises
//
// A receive, probe or posted receive matches as MPI prescribes, whether the
// message is still in MPI or already in the mailbox: messages of one sender and
// communicator are matched in the order they were sent, also by wildcards. A
// request completed by a drain stays complete until the program waits for it.
//
// Arguments are checked before MPI sees them. Errors return as *Error with the
// call, communicator, peer and tag; nothing here aborts the job. An empty slice is
// legal everywhere. A message of 2^31 bytes or more stays one message.
//
// Where dest and src of a collective share memory as MPI's in-place argument
// means it, the call is in place; any other overlap is an error.
//
// # Concurrency
//
// The world and everything made from it belong to one goroutine at a time, which
// may migrate between OS threads. Two calls at once are refused with
// ErrConcurrent. Endpoint methods say which of them any goroutine may call.
// With ThreadMultiple calls may overlap where the library grants it.
package mpiwrap
