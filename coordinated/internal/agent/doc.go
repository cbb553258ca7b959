// Package agent is the goroutine that speaks for a rank on the control plane, also while
// the main thread is inside MPI. It drives the cut machine and lets the main thread go on,
// gathers what all ranks say, answers questions about this rank, and notices ranks that are
// lost or deadlocked. What follows from that is coordinated's to do: it hands in functions.
//
// Everything an Agent holds belongs to its goroutine; all its exported methods may be
// called from any other, but for those that say so.
package agent
