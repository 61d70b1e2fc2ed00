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

# What the generator has no option for:
# - Requests have no other fields: the server refuses them. additionalProperties would refuse those in oneOf and allOf, too.
#   Responses of later versions may have more.
# - The server sends an int64 as a string.
# - The JSON of a Duration is not that of the format duration.
# - The header Connect-Protocol-Version is not needed.
document=${1:-.}/openapi.yaml
awk '
	/^    [^ ]+:$/ { strict = /^    refdb\.v1\.([A-Za-z]*Request|RefUpdate|Lease):$/ }
	/^      additionalProperties: false$/ { if (strict) print "      unevaluatedProperties: false"; next }
	/^ +type:$/ { type = $0; next }
	type != "" && /^ +- integer$/ { getline; print type " string"; type = ""; next }
	type != "" { print type; type = "" }
	/^      format: duration$/ { print "      pattern: ^-?[0-9]+([.][0-9]{1,9})?s$"; next }
	/^ +- name:/ { optional = /Connect-Protocol-Version$/ }
	optional && /required: true$/ { next }
	{ print }
' "$document" >"$document.new"
mv "$document.new" "$document"
