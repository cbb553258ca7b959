// Package wire is the protocol between the driver "remote" and a server of
// package gpud: the handshake, frames and the fields of every message, in the order of its method fields.
// docs/internals/REMOTE.md has the layout of the rest.
//
// # Terms
//
// A client is one opened device: one connection. Objects have numbers that the
// client chooses. A slot is a piece of staging memory of one client: transfers
// move in pieces of at most SlotBytes, each through a slot of its own, so that
// both sides hold a bounded number of bytes. Through a Unix socket the slots lie
// in memory that both processes map, and no bulk data passes the socket; nor do
// frames: they pass a Ring in the same memory.
//
// # Promises
//
// Nothing is parsed before the other side has proven that it knows the key.
// Decoders trust no length and no number. Commands are carried out in the order
// in which they were sent.
package wire
