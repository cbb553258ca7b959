#!/bin/bash
# A program that continues when a node dies, in the same job, with a spare node in
# its place. Checkpoints lie on the nodes' own disks with a copy on another node,
# and go to the parallel file system behind the program's back.
#
#	sbatch -N5 --ntasks-per-node=4 -t 24:00:00 slurm/node-failure.sh ./program arguments
#
# runs the program on 4 of the 5 nodes.
#
# --no-kill keeps the job when a node dies. When its first node dies, which runs this
# script, the ranks put the job back into the queue (holdfast run --requeue).
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@300
set -euo pipefail

spares=${SPARES:-1}                           # nodes of the job to keep for when others die
mpi=${MPI_PLUGIN:-pmix}                       # srun --mpi: pmix for Open MPI, pmi2 for MPICH
holdfast=${HOLDFAST:-holdfast}                # the command
interval=${HOLDFAST_INTERVAL:-10m}            # between checkpoints
# A directory of each node; the job gets one in it, unless HOLDFAST_LOCAL names one.
disk=${LOCAL_DISK:-${SLURM_TMPDIR:-/tmp}}
export HOLDFAST_GLOBAL=${HOLDFAST_GLOBAL:-$SLURM_SUBMIT_DIR/checkpoints-$SLURM_JOB_NAME}
export HOLDFAST_REDUNDANCY=${HOLDFAST_REDUNDANCY:-partner:1}
export HOLDFAST_INTERVAL=$interval

if (($# == 0)); then
	echo "usage: sbatch [sbatch options] node-failure.sh PROGRAM [ARGUMENTS]" >&2
	exit 2
fi
[ "$HOLDFAST_GLOBAL" = off ] || (umask 077 && mkdir -p "$HOLDFAST_GLOBAL")  # checkpoints hold the program's memory

exec "$holdfast" run --requeue --local-in "$disk" --spares "$spares" -- srun --mpi="$mpi" "$@"
