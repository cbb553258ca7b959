#!/bin/bash
# A program that gives way to jobs of higher priority: when the job is preempted
# it takes a final checkpoint inside the partition's GraceTime; Slurm requeues it
# and it continues when there is room again.
#
#	sbatch -p PREEMPTABLE -N4 --ntasks-per-node=4 -t 24:00:00 slurm/preemptible.sh ./program arguments
#
# Preemption reaches the job as USR1 at the start of the grace time where the site
# has set SlurmctldParameters=preempt_send_user_signal, else as TERM, which the
# ranks understand as well. The partition needs PreemptMode=REQUEUE and a GraceTime
# longer than a checkpoint takes.
#
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
set -euo pipefail

mpi=${MPI_PLUGIN:-pmix}                       # srun --mpi: pmix for Open MPI, pmi2 for MPICH
holdfast=${HOLDFAST:-holdfast}                # the command
interval=${HOLDFAST_INTERVAL:-10m}            # between checkpoints
export HOLDFAST_GLOBAL=${HOLDFAST_GLOBAL:-$SLURM_SUBMIT_DIR/checkpoints-$SLURM_JOB_NAME}
export HOLDFAST_INTERVAL=$interval

if (($# == 0)); then
	echo "usage: sbatch [sbatch options] preemptible.sh PROGRAM [ARGUMENTS]" >&2
	exit 2
fi
[ "$HOLDFAST_GLOBAL" = off ] || (umask 077 && mkdir -p "$HOLDFAST_GLOBAL")  # checkpoints hold the program's memory

exec "$holdfast" run --requeue -- srun --mpi="$mpi" "$@"
