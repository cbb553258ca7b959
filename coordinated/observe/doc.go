// Package observe watches the ranks of a program that takes no checkpoints, for holdfast run --watch. Each node's
// daemon looks at its ranks, whose messages libholdfast-mpi counts, and reports them to holdfast run, which names
// deadlocks, answers holdfast status, and lists at the end the obstacles to a checkpoint.
//
// Nothing here takes part in the program: it goes on if the watcher ends.
package observe
