#!/bin/sh
# Builds the demo into a directory and runs it. The first build takes a while, so it says
# how far it is.
# usage: demo.sh [go command [directory]]
set -eu
go=${1:-go}
bin=${2:-bin}
cd "$(dirname "$0")/.."
mkdir -p "$bin"
failed=$(mktemp)
trap 'rm -f "$failed"' EXIT
trap 'exit 130' INT TERM

# go build -v names each package as it is compiled; what it says besides is passed on.
echo "demo: building; about 300 packages if none was built here before" >&2
{ "$go" build -v -o "$bin/" ./apps/nbody ./test/demo 2>&1 || echo "failed" >"$failed"; } | awk '
	/^go: downloading/ { next }
	/[ :]/ || /^#/ { print; next }
	++n % 100 == 0 { printf "demo: %d packages built\n", n; fflush() }
' >&2
[ ! -s "$failed" ] || exit 1
rm -f "$failed"
exec "$bin/demo" -bin "$bin"
