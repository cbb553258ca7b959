#!/bin/sh
# Formatting of Go and C, length of lines, plain words, go vet, staticcheck, doc comments (revive) and shellcheck over
# all that git knows. quick leaves out go vet, staticcheck and revive, which take longest: to compile the last two alone
# is a minute of a core.
# usage: lint.sh [go command [quick]]
set -eu
go=${1:-go} quick=${2:-}
cd "$(dirname "$0")/.."

sources=$(git ls-files -co --exclude-standard '*.go' | while read -r f; do
	[ -f "$f" ] && printf '%s\n' "$f"
done)
unformatted=$(printf '%s\n' "$sources" | xargs -r gofmt -l)
if [ -n "$unformatted" ]; then
	printf 'lint: not gofmt-ed (run gofmt -w on them):\n%s\n' "$unformatted" >&2
	exit 1
fi

# A tab is four columns; of a character of several bytes the first counts.
# shellcheck disable=SC2016 # awk's $0
long=$({ printf '%s\n' "$sources"; git ls-files -co --exclude-standard '*.sh' 'lib/*.[ch]' 'lib/*.[ch]pp' 'lib/*.F90' \
	'examples/*.c' 'examples/*.cpp' 'examples/*.f90' '*.py' .ci/run; } |
	LC_ALL=C xargs awk '{
		line = $0; gsub(/\t/, "    ", line); gsub(/[\200-\277]/, "", line)
	} length(line) > 120 { print FILENAME ":" FNR }')
if [ -n "$long" ]; then
	printf 'lint: longer than 120 columns:\n%s\n' "$long" >&2
	exit 1
fi

if command -v clang-format-15 >/dev/null 2>&1; then
	git ls-files -co --exclude-standard 'lib/*.[ch]' 'lib/*.[ch]pp' | xargs clang-format-15 --dry-run -Werror
else
	echo "lint: clang-format-15 is not installed, the style of C in lib was not checked (make setup)" >&2
fi

# Words that have to be read twice, in pages and comments: test/words names the place and the remedy.
"$go" run ./test/words

if [ -z "$quick" ]; then
	staticcheck=$("$go" tool -n staticcheck)
	revive=$("$go" tool -n revive)
	rules=$PWD/scripts/revive.toml
	for module in . bench; do # staticcheck spends a third of its time on collecting garbage otherwise
		(cd "$module" && "$go" vet ./... && "$revive" -config "$rules" ./... && GOGC=300 "$staticcheck" ./...)
	done
fi

if command -v shellcheck >/dev/null 2>&1; then
	git ls-files -co --exclude-standard '*.sh' .ci/run | xargs -r shellcheck
else
	echo "lint: shellcheck is not installed, shell scripts were not checked (make setup)" >&2
fi
