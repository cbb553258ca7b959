// Package launch starts MPI programs for tests and the demo: under Open MPI or
// MPICH, with a time limit, finds the process of each rank so that it can be
// sent a signal, and leaves nothing running.
//
// # Ends
//
// Every start ends: when the program does, at its time limit, or when its context
// is done. Ranks whose launcher has died are found too, because the process that
// called Adopt becomes their parent; EndAll kills what is left below it.
package launch
