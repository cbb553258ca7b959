// Package trigger says when a checkpoint is wanted, and because of what: a signal, an
// interval, the deadline of the job, a final checkpoint that failed. It asks nobody and
// takes none: whoever holds a Triggers hears of it and asks the other ranks.
package trigger
