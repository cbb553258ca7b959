#!/bin/bash
# A program that runs longer than the time limit: before the limit it takes a
# final checkpoint, the job goes back into the queue and continues from there,
# again and again until the program ends.
#
#	sbatch -N4 --ntasks-per-node=4 -t 24:00:00 slurm/time-limit.sh ./program arguments
#
#SBATCH --requeue
#SBATCH --open-mode=append
# The batch script, which is holdfast run by then, is told 300 s before the end;
# Slurm may do so up to a minute early. Give more than a checkpoint takes.
#SBATCH --signal=B:USR1@300
set -euo pipefail

mpi=${MPI_PLUGIN:-pmix}                       # srun --mpi: pmix for Open MPI, pmi2 for MPICH
holdfast=${HOLDFAST:-holdfast}                # the command
interval=${HOLDFAST_INTERVAL:-30m}            # between checkpoints, for crashes
export HOLDFAST_GLOBAL=${HOLDFAST_GLOBAL:-$SLURM_SUBMIT_DIR/checkpoints-$SLURM_JOB_NAME}
export HOLDFAST_INTERVAL=$interval

if (($# == 0)); then
	echo "usage: sbatch [sbatch options] time-limit.sh PROGRAM [ARGUMENTS]" >&2
	exit 2
fi
[ "$HOLDFAST_GLOBAL" = off ] || (umask 077 && mkdir -p "$HOLDFAST_GLOBAL")  # checkpoints hold the program's memory

# exec: the signal goes to the process of the batch script.
exec "$holdfast" run --requeue -- srun --mpi="$mpi" "$@"
