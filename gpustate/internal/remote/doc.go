// Package remote is the driver of devices that another process offers: package
// gpud, on this node or another one.
//
// Commands are sent in order and are not waited for. A command that fails fails
// its event; on a queue without events for each command it fails the next event
// of the queue and its next Finish. The error is a *driver.CommandError that
// names the command.
//
// Where both processes run on one machine, messages pass through rings in shared
// memory. A waiter takes them out itself and spins shortly, if recent waits
// have been short and there are cores to spare; at rest nothing runs.
//
// Bulk data moves in pieces through slots: memory that both processes map where
// the server is reached through a Unix socket, otherwise the socket itself. A
// program's memory is read before Write returns, which does not wait for the
// device: see unawaited. Memory of a Read that does not block is written by a
// goroutine of this package until its event is complete; no command that comes after
// it is complete before: see report. Through a Unix socket
// memory of the kind MemHost that comes with a file is mapped by the server, which
// moves bytes between it and the device itself: see memory.
//
// When the connection breaks, every call and every event fails at once with a
// *wire.ServerError. Releasing objects then succeeds: they are gone.
package remote
