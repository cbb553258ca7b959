#!/bin/sh
# Checks the MPI constant tables against each mpi.h that is installed: under its
# build tag the binding is linked directly and a test compares every constant.
# usage: abi-tests.sh [go command]
set -eu
go=${1:-go}
cd "$(dirname "$0")/.."
[ -d mpiwrap/internal/abi ] || exit 0

check() { # tag pkg-config-module
	if pkg-config --exists "$2" 2>/dev/null; then
		"$go" test -count=1 -timeout 5m -tags "$1" ./mpiwrap/internal/abi
	else
		echo "abi-tests: no pkg-config module $2, the table for $1 was not checked (make setup)" >&2
	fi
}
check mpi_openmpi ompi-c
check mpi_mpich mpich
