// Package cut agrees on the moment of a checkpoint: all ranks at a Point of the
// program at one real moment, nobody inside a collective, every message known.
//
// # Terms
//
// A rank parks when its main thread stands at a Point and waits there. It is
// released when it is let go to its next Point because another rank cannot
// reach one without it. All ranks frozen is the cut: nobody is released any
// more. The coordinator is rank 0; the others hang below it in a tree.
//
// # Promises
//
// A Cut action is emitted on a rank only after every rank has voted, in one
// round, that it is parked with no release pending, and the collective numbers
// of all communicators agreed. Releases never hurt: they only let the program
// run on, so a lost or repeated message costs time and not correctness.
//
// # Shape
//
// A Machine is one rank's share of the protocol. It takes an Event and returns
// Actions; it reads no clock, starts no goroutine, holds no lock, does no I/O
// and iterates no map in random order. A run replays from its events. The
// package coordinated drives it with the control plane and the real program;
// the tests drive it with simulated ones.
//
// docs/PROTOCOL.md states the rules R0, R1 and R2 and why each is needed.
package cut
