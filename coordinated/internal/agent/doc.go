// Package agent has the goroutine that speaks for a rank on the control plane, even while the main thread is inside
// MPI. It drives the cut machine, releases the main thread, gathers reports of all ranks, answers questions about this
// rank, and notices lost or deadlocked ranks. coordinated decides on the consequences, by the functions that it passes.
//
// All state of an Agent belongs to its goroutine. Its exported methods may be called from any other goroutine, unless
// their comments say otherwise.
package agent
