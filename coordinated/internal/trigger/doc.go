// Package trigger decides when a checkpoint is wanted, and names the reason: a signal, an interval, the deadline of the
// job, a final checkpoint that failed. It takes no checkpoint: the owner of a Triggers receives its wishes and asks the
// other ranks.
package trigger
