// Package slurm knows the batch system: what it tells a job in its environment,
// when the job will be ended, which of its nodes are alive, how a job is put
// back into the queue and how its steps are signalled. It knows nothing of
// checkpoints.
//
// # Terms
//
// A job is an allocation of nodes with a script that runs on the first of them;
// a step is one srun inside it. A requeued job keeps its number and counts its
// restarts.
//
// # Commands
//
// What the environment does not say is asked of scontrol, sinfo, scancel and
// srun through a Client. Each command has a time limit, because all of them
// wait when the controller does not answer, and an error carries what the
// command wrote to its standard error (CommandError).
//
// A Client may be shared by goroutines; it holds no state but its settings.
package slurm
