#!/bin/sh
# Formatting of Go and C, length of lines, plain words, go vet, staticcheck, doc comments (revive) and shellcheck over
# all that git knows. staticcheck takes longest by far: with packages given it looks at these alone.
# usage: lint.sh [go command [package...]]
set -eu
go=${1:-go}
[ $# = 0 ] || shift
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

staticcheck=$("$go" tool -n staticcheck)
revive=$("$go" tool -n revive)
rules=$PWD/scripts/revive.toml
# staticcheck spends a third of its time on collecting garbage otherwise.
for module in . bench; do
	(cd "$module" && "$go" vet ./... && "$revive" -config "$rules" ./...)
done
GOGC=300 "$staticcheck" "${@:-./...}"
[ $# != 0 ] || (cd bench && GOGC=300 "$staticcheck" ./...)

if command -v shellcheck >/dev/null 2>&1; then
	git ls-files -co --exclude-standard '*.sh' .ci/run | xargs -r shellcheck
else
	echo "lint: shellcheck is not installed, shell scripts were not checked (make setup)" >&2
fi
