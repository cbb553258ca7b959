// Package slurm talks to the batch system. It reads a job's environment, deadline and healthy nodes, puts a job back
// into the queue and signals its steps. It knows nothing of checkpoints.
//
// # Terms
//
// A job is an allocation of nodes with a script that runs on the first of them;
// a step is one srun inside it. A requeued job keeps its number and counts its
// restarts.
//
// # Commands
//
// A Client asks scontrol, sinfo, scancel and srun for everything that the environment lacks. Each command has a time
// limit, because all of them wait when the controller does not answer. An error carries the command's standard error
// (CommandError).
//
// All calls are local: one process makes them, with or without MPI. As a rule a call of a Client runs one command,
// which asks the controller once: let one rank call, not all. A command that only asks is run again, up to eight times,
// if a signal of Slurm to the step has ended it.
//
// A Client may be shared by goroutines; it holds no state but its settings.
package slurm
