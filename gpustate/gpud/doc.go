// Package gpud serves the devices of a machine to programs on this and on other
// machines. Programs reach it with gpustate.Select{Remote: ...}.
//
// # Terms
//
// A client is one device that a program has opened. Its session serves it: one connection, one context of the API, one
// set of objects. An admin is a connection with questions and orders, such as `holdfast migrate` and `holdfast
// balance`. Orders take a key of their own, which clients need not know.
//
// A worker is a process with one session. The server listens, does the handshake, and hands the connection over. It
// reads the worker's counts of the client's usage in memory that both map, and passes orders on.
//
// The root package is the server: it admits, keeps and moves clients. Sessions are in internal/session, the confinement
// of their processes in internal/worker.
//
// # Calls
//
// All calls are local: a server belongs to no job and knows no ranks. Sizes are bytes, times are time.Duration. Errors
// of New name the option or the device. Errors of an Admin that come from the connection or the server are a
// *gpustate.ServerError. They may match gpustate.ErrKey, ErrRefused or ErrNoServer, or have a *gpustate.VersionError.
//
// # Concurrency
//
// A Server may be used by several goroutines. An Admin, a Balancer and a Window belong to one at a time.
//
// # Promises
//
// No client's kernel harms another client or the server: the worker that it ends is
// the client's own, and the client is informed at once. A
// worker ends with its client, with its server, and some seconds after either if
// it is stopped or in a kernel without end.
//
// A connection proves that it knows the key before anything of it is parsed. Every number a client sends is checked
// before a driver sees it. The resources of one client are bounded: its memory quota on the device, a fixed number of
// slots in host memory, and a window of commands. When a client goes, whatever the reason, all its objects go.
// Options.Timeout is the time after which a client is dropped that does not read its messages, or whose host is gone.
package gpud
