#!/usr/bin/env bash
# Builds refdbctl and refdb-hook as they are released, both static: scripts/build.sh DIR
set -euo pipefail

mkdir -p "${1:?usage: scripts/build.sh DIR}"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
CGO_ENABLED=0 "${GO:-go}" build -trimpath -ldflags '-s -w' -o "$out/" ./cmd/refdbctl ./cmd/refdb-hook
