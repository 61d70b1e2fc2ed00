#!/usr/bin/env bash
# Runs a command on a busy machine: beside N busy loops, and one that makes the disk
# write. Its status is the command's.
#
#     scripts/busy.sh N COMMAND [ARGUMENT …]
set -euo pipefail

usage() {
	echo "usage: scripts/busy.sh N COMMAND [ARGUMENT ...]" >&2
	exit 2
}
[[ ${1-} =~ ^[0-9]+$ && $# -ge 2 ]] || usage
n=$1
shift

directory=$(mktemp --directory)
loops=()
quiet() {
	kill "${loops[@]}" 2>/dev/null || true
	wait "${loops[@]}" 2>/dev/null || true
	rm -rf "$directory"
}
trap quiet EXIT

for ((i = 0; i < n; i++)); do
	(while :; do :; done) &
	loops+=($!)
done
(while :; do dd if=/dev/zero of="$directory/file" bs=64k count=16 conv=fsync status=none; done) &
loops+=($!)

"$@"
