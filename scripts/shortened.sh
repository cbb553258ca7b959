#!/bin/sh
# Prints the tests that do less under -short, by themselves or in a function of their package, as a pattern for
# go test -run; or the packages that have such tests.
# usage: shortened.sh tests|packages PATTERN: folders that PATTERN matches as a whole are left out
set -eu
cd "$(dirname "$0")/.."
list() {
	git ls-files -co --exclude-standard '*_test.go' | xargs -n1 dirname | sort -u | grep -vE "^bench/|^($1)\$" |
		while read -r dir; do
			cat "$dir"/*_test.go | awk -v dir="$dir" '
				/^func / { split($0, part, /^func (\([^)]*\) )?|[[({]/); name = part[2] }
				/^}/ { name = "" }
				name != "" { body[name] = body[name] "\n" $0 }
				END {
					for (name in body)
						if (body[name] ~ /testing\.Short\(\)|jobtest\.Crash(Step|Everywhere)\(/) short[name] = 1
					for (more = 1; more; ) {
						more = 0
						for (name in body) if (!(name in short)) for (called in short)
							if (body[name] ~ "[^A-Za-z0-9_]" called "[^A-Za-z0-9_]") {
								short[name] = more = 1
								break
							}
					}
					for (name in short) if (name ~ /^Test[^a-z]/) print dir, name
				}'
		done
}
case $1 in
packages) list "$2" | awk '{ print "./" $1 }' | sort -u ;;
tests) list "$2" | awk '{ all = all (NR > 1 ? "|" : "") $2 } END { print "^(" all ")$" }' ;;
esac
