#!/usr/bin/env bash
# Runs a command whose temporary files are in memory, if this machine has a file system in memory
# with room to spare that runs programs; otherwise they are where they are without it. They go with
# the command, whose exit status this is.
#
#     scripts/in-memory.sh COMMAND [ARGUMENT …]
set -euo pipefail

memory=/dev/shm
room=$((8 << 20)) # KiB; what go builds takes a part of it

if [[ $# -eq 0 ]]; then
	echo "usage: scripts/in-memory.sh COMMAND [ARGUMENT ...]" >&2
	exit 2
fi
free=$(df --output=avail "$memory" 2>/dev/null | tail -n 1) || free=0
if ((free < room)) || findmnt --noheadings --output OPTIONS --target "$memory" | grep -qw noexec; then
	exec "$@"
fi

# Short, because the path of a socket ends at about 100 bytes; the same for each run, because go test keeps results by
# it. Others may enter it, as they may enter /tmp.
export TMPDIR=$memory/t.$UID
mkdir -p "$TMPDIR"
chmod 1777 "$TMPDIR"
exec 9<"$TMPDIR"
flock --shared 9
clean() {
	if flock --nonblock 9; then # no other run is there
		find "$TMPDIR" -mindepth 1 -delete
	fi
}
trap clean EXIT
"$@" 9<&-
