#!/bin/sh
# Installs the Debian packages for a purpose and says how far it is. Prints nothing
# when nothing is missing; may be run any number of times.
# usage: setup.sh [demo|test|docs|criu|all]
set -eu

# The demo builds three programs and runs them under both MPIs on both devices.
demo="
	gcc libc6-dev make
	openmpi-bin mpich
	ocl-icd-libopencl1 pocl-opencl-icd mesa-opencl-icd
"
# The tests compile C, C++ and Fortran against MPI, look at its memory, and start a Slurm of their own.
test="$demo
	pkg-config libopenmpi-dev libmpich-dev valgrind binutils
	g++ gfortran cmake groff-base man-db environment-modules
	python3-numpy python3-mpi4py python3-pip python3-setuptools python3-wheel
	ocl-icd-opencl-dev opencl-headers clinfo oclgrind
	python3-pyopencl clpeak clblast-utils clfft-client hashcat
	slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libpmi2-0
	iproute2 util-linux procps strace shellcheck
"
# The report's pages and the site are looked at in a browser, the protocol's model is checked.
docs="chromium spin mkdocs-material mandoc"

fail() {
	echo "setup: $*" >&2
	exit 1
}

purpose=${1:-all}
case $purpose in
demo) packages=$demo ;;
test) packages=$test ;;
docs) packages=$docs ;;
criu) packages="" ;;
all) packages="$test $docs" ;;
*) fail "purpose \"$purpose\" is not known; use demo, test, docs, criu or all" ;;
esac

if ! command -v go >/dev/null 2>&1; then
	fail "Go is not installed or not in PATH; install go1.26 or newer from https://go.dev/dl and run this again"
fi
if ! command -v apt-get >/dev/null 2>&1; then
	fail "no apt-get here; install the equivalents of these Debian packages by hand:$packages"
fi

# The formatter of C comes in this version with Debian 12 alone; lint does without it.
case $purpose in
test | all) ! apt-cache show clang-format-15 >/dev/null 2>&1 || packages="$packages clang-format-15" ;;
esac

# Images of processes need CRIU 4.1. Debian 12 has an older one: the tests get one of their own, which is built once,
# for the purpose criu.
own_criu=""
case $purpose in
test | criu | all)
	case $(apt-cache show criu 2>/dev/null | sed -n 's/^Version: //p' | head -n 1) in
	"" | [0-3].* | 4.0*)
		own_criu=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast-tests/criu
		packages="$packages $(sh scripts/criu.sh --packages)"
		;;
	*) packages="$packages criu" ;;
	esac
	;;
esac

missing=""
for p in $packages; do
	state=$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null || true)
	[ "$state" = installed ] || missing="$missing $p"
done

build_criu() {
	[ "$purpose" != test ] && [ -n "$own_criu" ] && [ ! -x "$own_criu/sbin/criu" ] || return 0
	echo "setup: building CRIU, which takes a minute" >&2
	said=$(sh scripts/criu.sh "$own_criu" 2>&1) ||
		echo "setup: no CRIU, so tests of images skip: $(echo "$said" | tail -n 1)" >&2
}

[ -n "$missing" ] || {
	build_criu
	exit 0
}

if [ "$(id -u)" -ne 0 ]; then
	fail "missing packages, and installing them needs root: sudo apt-get install$missing"
fi

log=$(mktemp)
trap 'rm -f "$log" "$log.failed"' EXIT
trap 'exit 130' INT TERM

# progress prints a line for each fifth of what apt-get reports on its status
# descriptor, as "dlstatus:file:percent:text" and "pmstatus:package:percent:text".
progress() {
	awk -F: '
		$1 == "dlstatus" { what = "downloaded" }
		$1 == "pmstatus" { what = "installed" }
		what == "" || $1 !~ /status/ { next }
		what != last { last = what; next_ = 20 }
		$3 >= next_ { printf "setup: %d%% %s\n", $3, what; fflush(); next_ = 20 * (int($3 / 20) + 1) }
	' >&2
}

# RUNLEVEL=1 keeps the daemons of Slurm and munge from being started: the tests
# start their own, with their own configuration.
install() {
	# shellcheck disable=SC2086 # the list is meant to be split
	{ DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
		apt-get -o DPkg::Lock::Timeout=300 -o APT::Status-Fd=3 -y --no-install-recommends install $missing \
		3>&1 >"$log" 2>&1 || echo "failed" >"$log.failed"; } | progress
	! rm "$log.failed" 2>/dev/null
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
build_criu
