#!/bin/sh
# Builds CRIU for holdfast image, from Debian's source of a release that works on today's kernels: 3.17 of Debian 12
# fails from Linux 6.13 on. Needs no root, a minute, and the packages of which it names those that are missing.
# usage: criu.sh DIR    (afterwards: holdfast image --criu DIR/sbin/criu, or DIR/sbin in PATH)
#        criu.sh --packages
set -eu
[ $# = 1 ] || {
	sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

packages="gcc make pkg-config protobuf-compiler protobuf-c-compiler libprotobuf-dev libprotobuf-c-dev libnl-3-dev
	libcap-dev libnet1-dev libbsd-dev uuid-dev"
[ "$1" != --packages ] || {
	echo "$packages"
	exit 0
}
missing=""
for p in $packages; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
done
[ -z "$missing" ] || {
	echo "criu.sh: missing packages: sudo apt-get install --no-install-recommends$missing" >&2
	exit 1
}

mkdir -p "$1"
dir=$(cd "$1" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/criu.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

# An apt of its own, so that the machine's list of sources stays as it is.
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
mkdir -p lists/partial
own_apt() {
	apt-get -q -o Dir::Etc::SourceList="$work/src.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$work/lists" -o Dir::Cache="$work" -o APT::Sandbox::User= "$@"
}

# The releases that were tried, newest first: distribution, version, SHA-256 of the source.
version=""
while read -r release version sum; do
	echo "deb-src $mirror $release main" >src.list
	if own_apt update && own_apt source --download-only --tar-only "criu=$version-1" &&
		echo "$sum  criu_$version.orig.tar.xz" | sha256sum -c; then
		break
	fi
	version=""
done <<END
sid 4.2.1 29ec0ee09e296479fe7048c80980e8ef1d0684d0b0204c2b101dfea19f6725b9
trixie 4.1.1 f80a66cb3726bb2116266d4759ce3bcbfab7abdb6b6d430bf20dd41911717afe
END
[ -n "$version" ] || {
	echo "criu.sh: $mirror has none of the releases that this script knows" >&2
	exit 1
}

tar -xf "criu_$version.orig.tar.xz"
cd "criu-$version"
# The libraries that are left out serve networks of containers.
make -j"${JOBS:-$(nproc)}" criu/criu WERROR=0 NO_GNUTLS=1 USERCFLAGS=-g0 >"$dir/make.log" 2>&1 || {
	tail -n 20 "$dir/make.log" >&2
	exit 1
}
install -D -s criu/criu "$dir/sbin/criu"
"$dir/sbin/criu" --version
