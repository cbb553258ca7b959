// Package control is the control plane: short messages between the ranks of a
// job, beside MPI, so that a rank inside a native MPI call can still be asked.
//
// # Terms
//
// A Plane is one rank's end. Neighbours are the ranks it stays connected to (its
// parent and children in the tree); others are dialled when first needed.
//
// # Promises
//
// Messages of one rank to another arrive once and in order, or the receiver learns that the sender is lost. Every
// connection proves in both directions that the other side knows the key of the job, before one byte is parsed. A
// connection that cannot prove it is dropped and counted. A Plane listens on one address only.
//
// A neighbour whose connection breaks without a goodbye, or that is silent for
// PeerTimeout, is reported on Lost. The process's own stalls do not count
// against a neighbour.
//
// # Limits
//
// Traffic is authenticated when a connection opens, not encrypted: it carries
// counters and names. Whoever can inject into an open TCP connection between
// two nodes can disturb a job, as he can with the MPI traffic beside it.
//
// # Calls
//
// All calls are local: a rank makes them without the others. Start, Accept, AcceptClient, Dial and Flush wait, within
// their ctx. After Close, Send, Dial and Accept return ErrClosed. A message has at most 64 MiB.
//
// # Concurrency
//
// A Plane may be used from several goroutines. Close waits for its own.
package control
