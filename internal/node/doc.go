// Package node is the daemon that takes the checkpoints of programs in other languages:
// one for each job and node, with an agent for each rank. docs/internals/NODE.md has its protocol.
//
// # Concurrency
//
// A session serves one client. Its goroutine stands where the main thread of a Go program
// would: in Restore, Point and Close. Another one reads the socket. The agent calls Arm,
// Points and Signals from its own.
//
// # Promises
//
// Nothing is read from a process of another user. A client that dies or writes nonsense
// costs its job the epoch in progress, and the daemon nothing.
package node
