#!/bin/sh
# Runs a rank as if it had a node to itself: a host name, a scratch directory and a daemon of its own. As root.
# usage: node.sh DIRECTORY COMMAND ARGUMENT...
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
export VELOC_SCRATCH="$1/scratch-$rank" HOLDFAST_NODE_KEY="veloc-$PPID.$rank"
shift
exec unshare --uts sh -c "hostname node$rank && exec \"\$@\"" sh "$@"
