#!/usr/bin/env bash
# Checks that tags and CHANGELOG.md agree, and that each go.mod is tidy: scripts/release-check.sh [vX.Y.Z]
# With a version it also checks that this commit can be released as that version.
set -euo pipefail
cd "$(dirname "$0")/.."

status=0
complain() {
	echo "release-check: $*" >&2
	status=1
}

form='^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$'
version=${1-}
if [[ -n $version && ! $version =~ $form ]]; then
	echo "release-check: $version is no version such as v0.1.0" >&2
	exit 2
fi

# Sections such as "## [0.1.0] - 2026-01-31", the newest first.
sections=$(sed -nE 's/^## \[([0-9][^]]*)\].*/\1/p' CHANGELOG.md)
tags=$(git tag --list 'v[0-9]*' | sed 's/^v//')
missing() { comm -23 <(sort -u <<<"$1") <(sort -u <<<"$2") | sed '/^$/d'; }

for tag in $(missing "$tags" "$sections"); do complain "CHANGELOG.md has no section of the tag v$tag: add ## [$tag] - DATE"; done
# The newest section may be of a version that is about to be tagged.
for section in $(missing "$(tail -n +2 <<<"$sections")" "$tags"); do
	complain "CHANGELOG.md has a section of $section, and there is no tag v$section"
done
if [[ $sections != "$(sort --version-sort --reverse <<<"$sections")" ]]; then complain "the sections of CHANGELOG.md are not in the order of their versions"; fi
for line in $(grep -nE '^## \[[0-9]' CHANGELOG.md | grep -vE '^[0-9]+:## \[[^]]+\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$' | cut -d: -f1); do
	complain "CHANGELOG.md, line $line: a section's title is ## [X.Y.Z] - YYYY-MM-DD"
done

if [[ -n $version ]]; then
	number=${version#v}
	if ! grep -qxF "$number" <<<"$sections"; then
		complain "CHANGELOG.md has no section of $version: name [Unreleased] so, with the date, and begin a new [Unreleased]"
	elif [[ $(head -n 1 <<<"$sections") != "$number" ]]; then
		complain "$version is not the newest section of CHANGELOG.md"
	fi
	if [[ -n $(awk '/^## / { on = ($0 ~ /^## \[Unreleased\]/) ; next } on && NF' CHANGELOG.md) ]]; then
		complain "CHANGELOG.md has unreleased changes: move them to the section of $version"
	fi
	if tagged=$(git rev-parse --verify --quiet "refs/tags/$version^{commit}") && [[ $tagged != "$(git rev-parse HEAD)" ]]; then
		complain "$version is already another commit, $tagged"
	fi
	if [[ -n $(git status --porcelain) ]]; then complain "there are changes that are not committed"; fi
fi

for file in $(git ls-files '*go.mod'); do
	# -e: a proxy may hold back what only the tests of a dependency need
	(cd "$(dirname "$file")" && "${GO:-go}" mod tidy -e -diff >/dev/null) || complain "$file or go.sum is not tidy: go mod tidy"
done
exit "$status"
