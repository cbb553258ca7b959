// Package request has a rank's operations between the start of a call and its completion, before and after a cut.
//
// A Request is a non-blocking call: it is complete once, by MPI, by a message that was drained, or by a drain, and the
// program learns of it once. A Channel carries the messages of one communicator, counts them, and has the mailbox of
// drained ones, where every receive looks first. A Rank has their common state: the requests that MPI works on, the
// call that the rank is blocked on, the receives that a restart has lost. Bytes of a request that are not ready, those
// of device memory above all, are a rest: see package devmsg.
//
// Calls with a guard (Send, Wait, ...) publish themselves and refuse a second call at the same time. No buffer is typed
// here; package mpiwrap has the types, the collectives and the drain.
package request
