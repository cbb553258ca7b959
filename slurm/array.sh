#!/bin/bash
# An array of independent jobs, each with checkpoints of its own: every one continues
# by itself after its time limit, preemption or a crash.
#
#	sbatch --array=0-99 -N1 --ntasks-per-node=4 -t 4:00:00 slurm/array.sh ./program arguments
#
# %a in an argument stands for the number of the task.
#
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
set -euo pipefail

mpi=${MPI_PLUGIN:-pmix}                       # srun --mpi: pmix for Open MPI, pmi2 for MPICH
holdfast=${HOLDFAST:-holdfast}                # the command
interval=${HOLDFAST_INTERVAL:-10m}            # between checkpoints
base=${CHECKPOINTS:-$SLURM_SUBMIT_DIR/checkpoints-$SLURM_JOB_NAME}      # one directory in it for each task

if (($# == 0)) || [[ -z ${SLURM_ARRAY_TASK_ID:-} ]]; then
	echo "usage: sbatch --array=LIST [sbatch options] array.sh PROGRAM [ARGUMENTS]" >&2
	exit 2
fi
export HOLDFAST_GLOBAL=$base/$SLURM_ARRAY_TASK_ID
export HOLDFAST_JOB=$SLURM_JOB_NAME-$SLURM_ARRAY_TASK_ID
export HOLDFAST_INTERVAL=$interval
(umask 077 && mkdir -p "$HOLDFAST_GLOBAL")      # checkpoints hold the program's memory

exec "$holdfast" run --requeue -- srun --mpi="$mpi" "${@//%a/$SLURM_ARRAY_TASK_ID}"
