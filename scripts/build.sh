#!/usr/bin/env bash
# Builds refdbctl and refdb-hook as they are released, both static: scripts/build.sh DIR
set -euo pipefail

mkdir -p "${1:?usage: scripts/build.sh DIR}"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
build=("${GO:-go}" build -trimpath -o "$out/" -ldflags)

CGO_ENABLED=0 "${build[@]}" '-s -w' ./cmd/refdbctl
# The hook's shortcut is written in C. Without it all works the same, but slower.
CGO_ENABLED=1 "${build[@]}" '-s -w -extldflags -static' ./cmd/refdb-hook || {
	echo "${0##*/}: no C compiler with a static C library: building the hook without its shortcut, which saves a push some ms" >&2
	CGO_ENABLED=0 "${build[@]}" '-s -w' ./cmd/refdb-hook
}
