// Package observe watches the ranks of a program that takes no checkpoints, for holdfast run --watch. libholdfast-mpi
// counts the messages of the ranks. Each node's daemon looks at them and reports to holdfast run, which names deadlocks
// and answers holdfast status. At the end it lists the obstacles to a checkpoint.
//
// Nothing here takes part in the program: it goes on if the watcher ends. All calls are local: the daemon of a node
// makes those of Eye, holdfast run those of Job.
package observe
