// Package supervisor is the job's side towards whoever starts it again: it tells holdfast
// run what becomes of the run and carries out what that asks for, and puts the Slurm job
// back into the queue where holdfast run is dead or there is none.
package supervisor
