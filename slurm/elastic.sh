#!/bin/bash
# A program that continues on fewer ranks when a node dies and none is spare, and on all of them again
# once the job has come back from the queue with all its nodes. Its arrays are protected with their
# layouts (ProtectGlobal), so that any number of ranks restores them.
#
#	sbatch -N4 --ntasks-per-node=4 -t 24:00:00 slurm/elastic.sh 8 ./program arguments
#
# runs the program on 16 ranks, on 12 after the death of a node, on 8 after that of another. With
# fewer than 8 left, the job goes back into the queue.
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@300
set -euo pipefail

mpi=${MPI_PLUGIN:-pmix}                       # srun --mpi: pmix for Open MPI, pmi2 for MPICH
holdfast=${HOLDFAST:-holdfast}                # the command
# A directory of each node; the job gets one in it, unless HOLDFAST_LOCAL names one.
disk=${LOCAL_DISK:-${SLURM_TMPDIR:-/tmp}}
export HOLDFAST_GLOBAL=${HOLDFAST_GLOBAL:-$SLURM_SUBMIT_DIR/checkpoints-$SLURM_JOB_NAME}
export HOLDFAST_REDUNDANCY=${HOLDFAST_REDUNDANCY:-partner:1}
export HOLDFAST_INTERVAL=${HOLDFAST_INTERVAL:-10m} # between checkpoints

if (($# < 2)) || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
	echo "usage: sbatch [sbatch options] elastic.sh FEWEST-RANKS PROGRAM [ARGUMENTS]" >&2
	exit 2
fi
least=$1
shift
[ "$HOLDFAST_GLOBAL" = off ] || (umask 077 && mkdir -p "$HOLDFAST_GLOBAL")  # checkpoints hold the program's memory

exec "$holdfast" run --requeue --min-ranks "$least" --local-in "$disk" -- srun --mpi="$mpi" "$@"
