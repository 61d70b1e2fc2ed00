#!/usr/bin/env bash
# Shows the global ref database with real repositories, servers and pushes: two sites
# never accept different values for a ref. Usage: demo/run.sh BIN, the directory of refdbctl,
# refdb-hook and gitserver. It uses an embedded database in a temporary directory, or, in a
# project of its own, the one that REFDB_URL names. It exits with 1 at the first failure.
set -uo pipefail

bin=$(realpath "${1:?usage: demo/run.sh BIN}")
rounds=${DEMO_ROUNDS:-12}
work=$(mktemp -d)
export REFDB_URL=${REFDB_URL:-sqlite:$work/refdb.sqlite}
project=demo/$(basename "$work")
main=refs/heads/main
started=$SECONDS
declare -A daemon server url

export HOME=$work GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_TERMINAL_PROMPT=0
export REFDB_HOOK_TIMEOUT=5m # and site.timeout: the demo is to work on a slow machine, too
export GIT_AUTHOR_NAME=demo GIT_AUTHOR_EMAIL=demo@example.com GIT_COMMITTER_NAME=demo GIT_COMMITTER_EMAIL=demo@example.com

clean_up() {
  for pid in "${daemon[@]}" "${server[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; done
  "$bin/refdbctl" project remove "$project" --force --yes >/dev/null 2>&1
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

title() { printf '\n== %s\n' "$*"; }
say() { printf '   %s\n' "$*"; }
indent() { sed 's/^/     /'; }
fail() { printf '   FAILED: %s\n' "$*" >&2; tail -n 20 "$work"/*/*.log >&2; printf 'load: %s\n' "$(</proc/loadavg)" >&2; exit 1; }
# await COMMAND...: until it succeeds; only what hangs takes ten minutes.
await() {
  local deadline=$((SECONDS + 600))
  until "$@"; do [ $SECONDS -lt $deadline ] || return 1; sleep 0.05; done
}

refdbctl() { "$bin/refdbctl" "$@"; }
# site SITE SUBCOMMAND …: refdbctl site with the site's configuration.
site() { refdbctl site "$2" --config "$work/$1/site.config" "${@:3}"; }
repo() { echo "$work/$1/root/$project.git"; }
site_git() { git --git-dir="$(repo "$1")" "${@:2}"; }
value() { site_git "$1" rev-parse -q --verify "$2"; }
global() { refdbctl refs get "$project" "$1"; }
other() { [ "$1" = eu ] && echo us || echo eu; }
# catch_up SITE: the site takes the refs of the database, with the objects of the other site.
catch_up() { site "$1" sync --from "${url[$(other "$1")]}" --peer "$(other "$1")" "$(repo "$1")" >"$work/sync.out" 2>&1 || fail "sync of $1: $(cat "$work/sync.out")"; }

start_daemon() {
  "$bin/refdbctl" site serve --config "$work/$1/site.config" >>"$work/$1/site.log" 2>&1 &
  daemon[$1]=$!
  await serves_or_ended "$1" && kill -0 "${daemon[$1]}" 2>/dev/null
}
serves_or_ended() { site "$1" status >/dev/null 2>&1 || ! kill -0 "${daemon[$1]}" 2>/dev/null; }

# Each site has a copy, a daemon beside it, and a web server in front of it. The database keeps no objects, so that a site is behind until it syncs.
make_site() {
  mkdir -p "$(dirname "$(repo "$1")")" && git clone -q --bare "$work/seed" "$(repo "$1")" || return
  site_git "$1" config http.receivepack true && site_git "$1" remote remove origin
  printf '[site]\n\tname = %s\n\troot = %s\n\tsocket = %s\n\tstate = %s\n\tstore = none\n\ttimeout = 4m\n' \
    "$1" "$work/$1/root" "$work/$1/site.sock" "$work/$1" >"$work/$1/site.config"
  start_daemon "$1" || return
  site "$1" enable "${@:2}" "$(repo "$1")" >"$work/$1/enable.out" 2>&1 || { cat "$work/$1/enable.out" >&2; return 1; }
  "$bin/gitserver" 127.0.0.1:0 "$work/$1/root" >"$work/$1/address" 2>"$work/$1/server.log" &
  server[$1]=$!
  await test -s "$work/$1/address" || return
  url[$1]=http://$(cat "$work/$1/address")/$project.git
}

title "1. Two sites, eu and us: each a bare repository behind smart HTTP, one database"
{ git init -q -b main "$work/seed" && cd "$work/seed" && echo 1 >file && git add file && git commit -q -m "first" && git branch "o'brien" && git tag v1 && cd /; } || fail "git could not make a repository"
refdbctl migrate up >/dev/null || fail "no schema"
make_site eu --new || fail "site eu"
make_site us || fail "site us"
say "\$ refdbctl site enable --new $project.git"
indent <"$work/eu/enable.out"
for s in eu us; do git clone -q "${url[$s]}" "$work/$s/client" || fail "clone from $s"; done

# push SITE REF PARENT: pushes a new commit on top of PARENT to the site.
push() {
  local new
  new=$(git -C "$work/$1/client" commit-tree -p "$3" -m "by $1, $RANDOM" "$3^{tree}") || exit 1
  git -C "$work/$1/client" push -q "${url[$1]}" "$new:$2" >"$work/$1/push.out" 2>&1
}

title "2. Both take a push to $main at the same time, $rounds times: each time exactly one is accepted"
eu_won=0 us_won=0
for round in $(seq "$rounds"); do
  old=$(global "$main")
  for s in eu us; do git -C "$work/$s/client" fetch -q "${url[$s]}" "$main" || fail "fetch from $s"; done
  push eu "$main" "$old" & eu=$!
  push us "$main" "$old" & us=$!
  wait $eu; eu_status=$?
  wait $us; us_status=$?
  case $eu_status/$us_status in
    0/1) winner=eu loser=us; eu_won=$((eu_won + 1)) ;;
    1/0) winner=us loser=eu; us_won=$((us_won + 1)) ;;
    *) cat "$work"/*/push.out >&2; fail "round $round: the pushes' statuses are $eu_status and $us_status, not one 0 and one 1" ;;
  esac
  [ "$(value $winner $main)" = "$(global $main)" ] || fail "round $round: the database does not have what $winner accepted"
  [ "$(value $loser $main)" = "$old" ] || fail "round $round: $loser moved"
  [ "$round" = "$rounds" ] || catch_up $loser
done
say "$rounds rounds: eu accepted $eu_won, us $us_won, both 0, neither 0"

title "3. Site $loser is one push behind now: it says so, and catches up"
push $loser "$main" "$old" && fail "$loser accepted a push on top of an old value"
say "\$ git push   # to $loser"
indent <"$work/$loser/push.out"
grep -q "is behind" "$work/$loser/push.out" || fail "the refusal does not say why"
say "\$ refdbctl site sync --from ${url[$winner]} $project.git   # on $loser"
catch_up $loser
indent <"$work/sync.out"
[ "$(value eu $main)" = "$(value us $main)" ] || fail "the sites differ"

title "4. A crash on eu: the push and the daemon are killed with -9, after git moved the branch"
# A hook of the site's own, which refdb-hook runs before itself, simulates the crash.
cat >"$(repo eu)/hooks/reference-transaction" <<SCRIPT
#!/bin/sh
[ "\$1" = committed ] && [ -e $work/crash ] || exit 0
rm $work/crash
kill -9 \$(cat $work/eu/daemon.pid) \$(awk '{print \$4}' /proc/\$PPID/stat)
SCRIPT
chmod +x "$(repo eu)/hooks/reference-transaction"
old=$(global "$main")
git -C "$work/eu/client" fetch -q "${url[eu]}" "$main"
echo "${daemon[eu]}" >"$work/eu/daemon.pid"
disown "${daemon[eu]}" # or the shell would print a message when it is killed
touch "$work/crash"
push eu "$main" "$old" && fail "a push that was killed reported success"
while kill -0 "${daemon[eu]}" 2>/dev/null; do sleep 0.05; done
[ "$(value eu $main)" != "$old" ] || fail "the crash came too early"
[ "$(global $main)" = "$old" ] || fail "the crash came too late"
say "eu's branch moved, the database does not know, eu's readers may have seen it. The intent stands:"
say "\$ refdbctl locks list"
refdbctl locks list --project "$project" | indent
git -C "$work/us/client" fetch -q "${url[us]}" "$main"
push us "$main" "$old" && fail "us accepted a push meanwhile"
say "\$ git push   # to us"
indent <"$work/us/push.out"
say "eu's daemon is started again, reads its repository, and settles it:"
start_daemon eu || fail "the daemon does not start"
settled() { [ "$(global $main)" = "$(value eu $main)" ]; }
await settled || fail "the intent was not settled"
say "\$ refdbctl refs get $project $main"
global "$main" | indent
catch_up us

title "5. Both sites are audited"
rm "$(repo eu)/hooks/reference-transaction" # the crash
for s in eu us; do
  say "\$ refdbctl site check   # on $s"
  site $s check >"$work/check.out" 2>&1 || { cat "$work/check.out" >&2; fail "$s has findings"; }
  indent <"$work/check.out"
done
[ "$(value eu $main)" = "$(value us $main)" ] || fail "the sites differ"
[ "$(refdbctl locks list --project "$project" -o json | tr -d '[:space:]')" = "[]" ] || fail "a lock was left over"

title "All as it should be, in $((SECONDS - started)) s"
