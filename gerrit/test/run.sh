#!/usr/bin/env bash
# Runs two real Gerrits with the guard at two sites, each with its site daemon, and looks at what users get and what the
# database has. Usage: run.sh BIN [CHAPTER...]: BIN is the directory of refdbctl and refdb-hook; chapter 1 must be among them, and 2
# before all later ones, and 6 before 7. It uses an SQLite file, or the empty database that REFDB_URL names, or a server of its own if that
# is "postgres" or "spanner" (the emulator). It exits with 1 at the first failure; KEEP=1 keeps its files. GERRIT_VERSION is 3.9.4 or a
# 3.13: see program.sh. The chapter "cost", which only runs if it is named, measures and checks nothing: GERRIT_TEST_COSTS, GERRIT_TEST_TURNS.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

source "$here/java.sh"
source "$here/site.sh"
source "$here/client.sh"
source "$here/load.sh"
source "$here/database.sh"
for tool in jq curl git ssh; do command -v $tool >/dev/null || { echo "$tool is needed" >&2; exit 1; }; done

bin=$(realpath "${1:?usage: run.sh BIN [CHAPTER...]}")
chapters=("${@:2}")
[[ $# -gt 1 ]] || chapters=(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
work=$(mktemp -d)
source "$here/program.sh"
# Programs and jar are installed into one directory, as the page says.
mkdir "$work/bin"
cp "$bin/refdbctl" "$bin/refdb-hook" "$jar" "$work/bin/"
export PATH=$work/bin:${java%/*}:$PATH
build_database "${REFDB_URL-}" # before HOME, where Go's caches are, is another one
export REFDB_HOOK_TIMEOUT=3m # more than site.timeout
export HOME=$work GIT_CONFIG_SYSTEM=/dev/null GIT_TERMINAL_PROMPT=0
export GIT_AUTHOR_NAME=admin GIT_AUTHOR_EMAIL=admin@example.com GIT_COMMITTER_NAME=admin GIT_COMMITTER_EMAIL=admin@example.com
# free_port FROM COUNT: a random one of COUNT ports that nobody listens on, nor on the one 1000 above, which is for SSH.
free_port() {
	local port
	while port=$(($1 + RANDOM % $2)); listens $port || listens $((port + 1000)); do :; done
	echo $port
}
listens() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
GERRIT_PORT_eu=$(free_port 20000 9000) GERRIT_PORT_us=$(free_port 30000 2000)
export GERRIT_PORT_eu GERRIT_PORT_us

clean_up() {
	status=$?
	trap - EXIT
	for pid in "${processes[@]}"; do kill "$pid" 2>/dev/null || true; done
	for pid in "${processes[@]}"; do wait "$pid" 2>/dev/null || true; done
	end_database
	for at in "$(root eu)" "$work/crashed"; do ! mountpoint -q "$at" || umount "$at"; done # of the chapter about disks
	if [[ ${KEEP-} ]]; then echo "kept: $work"; else rm -rf "$work"; fi
	exit $status
}
trap clean_up EXIT
trap 'exit 130' INT TERM

open_database
for chapter in "${chapters[@]}"; do
	source "$here"/chapter_"$chapter"_*.sh
done
echo
echo "$checks checks passed, 0 failed"
