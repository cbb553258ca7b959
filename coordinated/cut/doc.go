// Package cut agrees on the moment of a checkpoint: all ranks at a Point of the
// program at one real moment, no rank inside a collective, every message known.
//
// # Terms
//
// A rank parks when its main thread stands at a Point and waits there. It is
// released when it is let go to its next Point because another rank cannot
// reach one without it. All ranks frozen is the cut: no rank is released any
// more. The coordinator is rank 0; the others hang below it in a tree.
//
// # Promises
//
// A rank emits a Cut action only after a round of votes: every rank is parked with no release pending, and the
// collective numbers of all communicators agree. Releases never hurt: they only let the program run on, so a lost or
// repeated message costs time and not correctness. Every rank emits either Cut or GaveUp for an epoch that is given up
// or cut anywhere.
//
// # Shape
//
// A Machine is one rank's share of the protocol. It takes an Event and returns
// Actions; it reads no clock, starts no goroutine, holds no lock, does no I/O
// and iterates no map in random order. A run replays from its events. The
// package coordinated drives it with the control plane and the real program;
// the tests drive it with simulated ones.
//
// # Calls
//
// All calls are local: they compute, and send nothing. The driver sends the messages of the Send actions. Errors are
// those of New, for a Config that is no rank of a tree, and of Decode. A Machine and a Gather belong to one goroutine.
//
// # Where to read on
//
// docs/PROTOCOL.md states the rules R0, R1 and R2, why each is needed, and the test that shows it. In the code, park.go
// leads from a request until all ranks are parked, with the release rules in mustGo. collectives.go and news.go serve
// R1; needs.go, blocked.go and elect.go serve R2. freeze.go has the rounds of votes and the ends of an epoch,
// coordinator.go the part of rank 0. testdata holds scenarios, model a Promela model, scale a simulation of many ranks.
package cut
