// Package outside is rank 0's connection between a job and other processes. It publishes the contact file, answers
// holdfast status and request, and refuses a second run in the same directory. It reports the run to holdfast run, and
// obeys its requests. If holdfast run is dead, or was not used, it puts the Slurm job back into the queue.
package outside
