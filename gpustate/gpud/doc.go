// Package gpud serves the devices of a machine to programs on this and on other
// machines. Programs reach it with gpustate.Select{Remote: ...}.
//
// # Terms
//
// A client is one device that a program has opened: one connection, one context
// of the API, one set of objects. An admin is a connection with questions and
// orders: what `holdfast migrate` and `holdfast balance` are.
//
// # Promises
//
// A connection proves that it knows the key before anything of it is parsed.
// Every number a client sends is checked before a driver sees it. What one client
// makes the server hold is bounded: its memory quota on the device, a fixed number
// of slots in host memory, and a window of commands. When a client goes, whatever
// the reason, all its objects go. A client that does not read what it is sent is
// dropped after Options.Patience.
package gpud
