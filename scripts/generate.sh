#!/usr/bin/env bash
# Generates the code and the OpenAPI document of the API from proto/, with the tools of tools/proto, into the directory proto/ or,
# given one, into that: scripts/generate.sh [DIR]. The first time, it compiles buf for some minutes.
# It refuses changes that are incompatible with proto/image.binpb, the API of the latest release.
set -euo pipefail

cd "$(dirname "$0")/../tools/proto"
go=${GO:-go}
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
for tool in buf protoc-gen-go protoc-gen-connect-go protoc-gen-connect-openapi; do
	ln -s "$($go tool -n "$tool")" "$bin/$tool"
done
cd ../../proto
PATH=$bin:$PATH
buf lint
buf breaking --against ./image.binpb
buf generate --output "${1:-.}"
