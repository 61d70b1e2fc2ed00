#!/usr/bin/env bash
# Runs a command on a busy machine: beside N busy loops and a loop that writes to disk
# with fsync. The exit status is that of the command.
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
