#!/bin/sh
# Checks the model with spin: all programs without a rule taken out must pass,
# and each broken variant must fail, or the check would prove nothing.
# usage: run.sh
set -eu
cd "$(dirname "$0")"
for tool in spin gcc; do
	if ! command -v $tool >/dev/null 2>&1; then
		echo "test-model: $tool is not installed (make setup)" >&2
		exit 1
	fi
done

model=$PWD/cut.pml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
cd "$work"
spin -a "$model" >spin.log || { cat spin.log >&2; exit 1; }
# -O0: compiling takes longer than searching.
gcc -O0 -w -DSAFETY -DCOLLAPSE -DNOCLAIM -DVECTORSZ=512 -DMEMLIM=2000 -o pan pan.c

# check NAME BROKEN WANT [FLAG...]: WANT is "errors: 0", or what must go wrong.
check() {
	name=$1 broken=$2 want=$3
	shift 3
	BROKEN=$broken ./pan -n -m500000 "$@" >pan.log 2>&1 || true
	if ! grep -q "$want" pan.log || grep -q "max search depth too small\|out of memory" pan.log; then
		cat pan.log >&2
		echo "test-model: $name: wanted \"$want\"" >&2
		exit 1
	fi
	states=$(awk '/states, stored/ { print $1 }' pan.log)
	printf '%-42s %10s states  %s\n' "$name" "$states" "$want, as it must be"
}

check "the protocol" 0 "errors: 0"
check "the protocol, raises may be lost" 6 "errors: 0" -E # hangs are allowed, a wrong cut is not
check "without R1" 1 "invalid end state"
check "without R2" 2 "invalid end state"
check "without draining at a Point" 5 "invalid end state"
check "cut without a vote" 3 "assertion violated"
check "vote without looking" 4 "assertion violated"
check "raises lost and no fingerprint" 7 "assertion violated" -E
