#!/bin/sh
# Builds an Open MPI that takes CUDA memory, from Debian's source of the version that is installed by apt: its
# libmpi.so.40 stands in for Debian's, whose build leaves CUDA out. Needs no GPU, no root, and some 10 minutes.
#
# Of CUDA the build needs cuda.h alone: from CUDA_HOME (default /usr/local/cuda), else from Debian's package
# nvidia-cuda-dev, of the component non-free (0.8 GB are fetched for it). Programs load the driver's libcuda.so.1.
# usage: openmpi-cuda.sh DIR    (afterwards: . DIR/env.sh)
set -eu
[ $# = 1 ] || {
	sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
mkdir -p "$1"
dir=$(cd "$1" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/openmpi-cuda.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

# An apt of its own, so that the machine's list of sources stays as it is.
# shellcheck disable=SC1091 # each system has its own
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
mkdir -p lists/partial
printf 'deb-src %s %s main\ndeb %s %s non-free\n' "$mirror" "$release" "$mirror" "$release" >src.list
own_apt() {
	apt-get -q -o Dir::Etc::SourceList="$work/src.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$work/lists" -o Dir::Cache="$work" -o APT::Sandbox::User= "$@"
}
own_apt update
own_apt source --download-only openmpi

cuda=${CUDA_HOME:-/usr/local/cuda}
if [ ! -f "$cuda/include/cuda.h" ]; then
	own_apt download nvidia-cuda-dev
	dpkg-deb --fsys-tarfile nvidia-cuda-dev_*.deb | tar -x ./usr/include/cuda.h
	rm nvidia-cuda-dev_*.deb
	cuda=$work/usr
fi

tar -xf openmpi_*.orig.tar.*
cd openmpi-[0-9]*
./configure --prefix="$dir" --with-cuda="$cuda" --enable-mpi-fortran=no --disable-mpi-cxx --disable-oshmem \
	--disable-io-romio --with-hwloc=internal --with-libevent=internal --with-pmix=internal >"$dir/configure.log"
make -j"${JOBS:-$(nproc)}" >"$dir/make.log"
make install-strip >>"$dir/make.log"
ln -sf orterun "$dir/bin/mpirun.openmpi"

# Open MPI asks OPAL_PREFIX where it is: a folder that moves needs this file changed.
cat >"$dir/env.sh" <<END
export OPAL_PREFIX='$dir'
export PATH="\$OPAL_PREFIX/bin:\$PATH"
export LD_LIBRARY_PATH="\$OPAL_PREFIX/lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
END
"$dir/bin/ompi_info" --parsable --all | grep 'mpi_built_with_cuda_support:value'
