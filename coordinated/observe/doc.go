// Package observe says what the ranks of a program are doing that takes no checkpoints: holdfast run --watch. Each
// node's daemon looks at its ranks, whose messages libholdfast-mpi counts, and tells holdfast run, which names
// deadlocks, answers holdfast status, and says at the end what a checkpoint would have met.
//
// Nothing here has a part in the program: it goes on whatever becomes of the one who looks.
package observe
