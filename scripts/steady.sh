#!/bin/sh
# Runs the tests of packages that start ranks, daemons or a Slurm. Launchers and libraries of
# others take part in them, and some of these fail once in a thousand runs. So the tests that
# failed are run three times more. One that passes each time is named as unsteady and fails
# nothing: its first output is there to be read, and its cause to be found. All else fails: a test
# that fails again, more than three tests, a panic, a race, in a rank too, a package that does not
# build or ran out of time.
# usage: steady.sh go-command test-flag... -- package...
set -eu
go=$1
shift
flags=
while [ "$1" != -- ]; do
	flags="$flags $1"
	shift
done
shift
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

# shellcheck disable=SC2086 # flags are words
{ "$go" test $flags "$@" 2>&1 || echo $? >"$dir/failed"; } | tee "$dir/output"
[ -s "$dir/failed" ] || exit 0

if grep -q -E '^(panic:|fatal error:|FAIL.*\[)|WARNING: DATA RACE' "$dir/output"; then
	echo "steady: the tests failed, and not by one test alone; they are not run again" >&2
	exit 1
fi
# One line for each package that failed: its name, and its tests as a pattern.
awk '
	/^--- FAIL: / { tests = tests (tests == "" ? "" : "|") $3; n++ }
	/^FAIL\t/ { if (tests == "" || n > 3) exit 1; print $2, "^(" tests ")$"; tests = "" }
' "$dir/output" >"$dir/again" || {
	echo "steady: more failed than three tests, or a package outside its tests; they are not run again" >&2
	exit 1
}
[ -s "$dir/again" ] || exit 1
while read -r package tests; do
	echo "steady: $package: $tests failed; three runs more" >&2
	# shellcheck disable=SC2086
	"$go" test $flags -count=3 -run "$tests" "$package" </dev/null || exit 1
done <"$dir/again"
while read -r package tests; do
	echo "steady: UNSTEADY $package: $tests failed above, then passed three times; look for the cause" >&2
done <"$dir/again"
