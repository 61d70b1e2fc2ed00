#!/usr/bin/env bash
# Builds refdbctl, refdb-hook and refdb-server, or only the programs that are named, as they are released, all static:
# scripts/build.sh DIR [PROGRAM …]
set -euo pipefail

mkdir -p "${1:?usage: scripts/build.sh DIR [PROGRAM ...]}"
out=$(cd "$1" && pwd)
shift
if [[ $# -eq 0 ]]; then set -- refdbctl refdb-hook refdb-server; fi
cd "$(dirname "$0")/.."
CGO_ENABLED=0 "${GO:-go}" build -trimpath -ldflags '-s -w' -o "$out/" "${@/#/./cmd/}"
