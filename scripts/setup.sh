#!/bin/sh
# Installs the Debian packages that building, testing and the demo need. Prints
# nothing when nothing is missing; may be run any number of times.
set -eu

packages="
	gcc libc6-dev make pkg-config
	openmpi-bin libopenmpi-dev
	mpich libmpich-dev
	ocl-icd-libopencl1 ocl-icd-opencl-dev opencl-headers clinfo
	pocl-opencl-icd mesa-opencl-icd oclgrind
	slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libpmi2-0
	iproute2 util-linux procps shellcheck spin chromium
"

fail() {
	echo "setup: $*" >&2
	exit 1
}

if ! command -v go >/dev/null 2>&1; then
	fail "Go is not installed or not in PATH; install go1.26 or newer from https://go.dev/dl and run this again"
fi
if ! command -v apt-get >/dev/null 2>&1; then
	fail "no apt-get here; install the equivalents of these Debian packages by hand:$packages"
fi

missing=""
for p in $packages; do
	state=$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null || true)
	[ "$state" = installed ] || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
	fail "missing packages, and installing them needs root: sudo apt-get install$missing"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT INT TERM

# RUNLEVEL=1 keeps the daemons of Slurm and munge from being started: the tests
# start their own, with their own configuration.
install() {
	# shellcheck disable=SC2086 # the list is meant to be split
	DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
		apt-get -o DPkg::Lock::Timeout=300 -y --no-install-recommends install $missing >"$log" 2>&1
}

echo "setup: installing$missing" >&2
if ! install; then
	# The package lists may be older than the mirror.
	apt-get -o DPkg::Lock::Timeout=300 update >"$log" 2>&1 || true
	if ! install; then
		tail -n 20 "$log" >&2
		fail "apt-get could not install$missing"
	fi
fi
