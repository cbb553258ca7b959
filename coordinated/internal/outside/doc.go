// Package outside is rank 0's side of what passes between a job and other processes. It publishes the contact file,
// answers holdfast status and request, and refuses a second run in the same directory. To holdfast run it reports what
// becomes of the run, and it carries out what that asks for. Where holdfast run is dead, or there is none, it puts the
// Slurm job back into the queue.
package outside
