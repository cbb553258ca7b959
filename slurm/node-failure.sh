#!/bin/bash
# A program that goes on when a node dies, in the same job, with a spare node in
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
export HOLDFAST_LOCAL=${HOLDFAST_LOCAL:-/tmp/holdfast-$SLURM_JOB_ID}    # on each node's own disk
export HOLDFAST_GLOBAL=${HOLDFAST_GLOBAL:-$SLURM_SUBMIT_DIR/checkpoints-$SLURM_JOB_NAME}
export HOLDFAST_REDUNDANCY=${HOLDFAST_REDUNDANCY:-partner:1}
export HOLDFAST_INTERVAL=$interval

if (($# == 0)); then
	echo "usage: sbatch [sbatch options] node-failure.sh PROGRAM [ARGUMENTS]" >&2
	exit 2
fi
(umask 077 && mkdir -p "$HOLDFAST_GLOBAL")      # checkpoints hold the program's memory
# Anybody may make a directory or a link in /tmp before the job does: one of another
# user is not used.
# shellcheck disable=SC2016 # expanded on each node
srun --overlap --mpi=none -N "$SLURM_JOB_NUM_NODES" -n "$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 bash -c '
	(umask 077 && mkdir -p "$1")
	[[ ${HOLDFAST_ALLOW_FOREIGN:-} == true || (-O $1 && $(stat -c %u "$1") =~ ^(0|$EUID)$) ]] || {
		echo "$(hostname): $1 is of another user; set HOLDFAST_LOCAL to another directory" >&2
		exit 1
	}' - "$HOLDFAST_LOCAL"

exec "$holdfast" run --requeue --spares "$spares" -- srun --mpi="$mpi" "$@"
