// Package gpud serves the devices of a machine to programs on this and on other
// machines. Programs reach it with gpustate.Select{Remote: ...}.
//
// # Terms
//
// A client is one device that a program has opened. Its session is what serves it: one
// connection, one context of the API, one set of objects. An admin is a connection with questions and
// orders: what `holdfast migrate` and `holdfast balance` are. Orders take a key of
// their own, which clients need not know.
//
// A worker is a process with one session. The server listens, does the handshake, and
// hands the connection over; it reads what the worker counts, the client's usage, in
// memory that both map, and passes orders on.
//
// The root package is the server: who comes, who stays, who moves. What a session does
// is in internal/session, how its process is kept apart in internal/worker.
//
// # Promises
//
// No client's kernel harms another client or the server: the worker that it ends is
// the client's own, and the client is informed at once. A
// worker ends with its client, with its server, and some seconds after either if
// it is stopped or in a kernel without end.
//
// A connection proves that it knows the key before anything of it is parsed.
// Every number a client sends is checked before a driver sees it. What one client
// makes the server hold is bounded: its memory quota on the device, a fixed number
// of slots in host memory, and a window of commands. When a client goes, whatever
// the reason, all its objects go. Options.Timeout says when a client is dropped that
// does not read what it is sent, or whose host is gone.
package gpud
