#!/bin/sh
# Makes the pages of the documentation: README, docs and the manual pages, with navigation and search.
# usage: site.sh BIN OUT; OUT/html is new afterwards
set -eu

bin=$1 out=$2

for command in mkdocs mandoc; do
	if ! command -v $command >/dev/null 2>&1; then
		echo "site: there is no $command; install Debian's mkdocs-material and mandoc, or run scripts/setup.sh docs" >&2
		exit 1
	fi
done

stage=$out/stage
rm -rf "$stage" "$out/html"
mkdir -p "$stage/man"
cp scripts/site.yml "$out/mkdocs.yml"
cp scripts/site.css "$stage"

# The pages link each other, and source files, as they lie in the repository.
cp -R --parents README.md CHANGELOG.md CONTRIBUTING.md LICENSE docs examples "$stage"
cp --parents apps/README.md packaging/README.md "$stage"
sed -i 's|(examples)|(https://github.com/holdfast-hpc/holdfast/tree/main/examples)|' "$stage/README.md"
# shellcheck disable=SC2016 # fences of Markdown
sed -i 's/^```hex.*/```text/; s/^```jsonevents/```json/' "$stage/docs/FORMAT.md" # the names are for its test

# A manual page is the text of a page of its own. It links the others, by their first names.
"$bin/holdfast" man "$out/roff" >/dev/null
pages=$(for page in "$out"/roff/man1/* man/*.3 "$out"/roff/man5/*; do echo "$page"; done)
names=$(echo "$pages" | sed 's|.*/||; s/[.]/[.]/g' | paste -sd '|')
{
	printf '# Manual pages\n\n'
	for page in $pages; do
		name=$(basename "$page")
		title="${name%.*}(${name##*.})"
		{
			printf -- '---\ntitle: %s\n---\n\n# %s\n\n' "$title" "$title"
			mandoc -T html -O fragment,man=@%N.%S "$page" | sed -E '/^<table class="(head|foot)">/,/^<\/table>/d
				s/<(\/?)h2/<\1h3/g; s/<(\/?)h1/<\1h2/g
				s/href="@('"$names"')"/href="\1.html"/g; s/ href="@[^"]*"//g'
		} >"$stage/man/$name.md"
		printf -- '- [%s](%s.md)\n' "$title" "$name"
	done
} >"$stage/man/README.md"

(cd "$out" && mkdocs --quiet build)
echo "site: $out/html/index.html"
