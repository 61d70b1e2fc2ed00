#!/usr/bin/env bash
# What the global ref database is for, shown with real repositories: two sites,
# one truth. Usage: demo/run.sh REFDBCTL. It works on an embedded database in a
# temporary directory, or on the one that REFDB_URL names, in a project of its own.
# It exits with 1 as soon as anything is not as it should be.
set -uo pipefail

refdbctl=$(realpath "${1:?usage: demo/run.sh REFDBCTL}")
rounds=${DEMO_ROUNDS:-50}
work=$(mktemp -d)
export REFDB_URL=${REFDB_URL:-sqlite:$work/refdb.sqlite}
project=demo/$(basename "$work")
main=refs/heads/main
started=$SECONDS

export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=demo GIT_AUTHOR_EMAIL=demo@example.com GIT_COMMITTER_NAME=demo GIT_COMMITTER_EMAIL=demo@example.com

clean_up() {
  [ -z "${holder:-}" ] || kill -9 "$holder" 2>/dev/null
  "$refdbctl" project remove "$project" --force --yes >/dev/null 2>&1
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

title() { printf '\n== %s\n' "$*"; }
say() { printf '   %s\n' "$*"; }
show() { printf '   $ refdbctl %s\n' "$*"; "$refdbctl" "$@" 2>&1 | sed 's/^/     /'; return "${PIPESTATUS[0]}"; }
fail() { printf '   FAILED: %s\n' "$*" >&2; exit 1; }

site_git() { git --git-dir="$work/$1.git" "${@:2}"; }

# Each site's own copy, made on the spot: a few commits, branches and a tag.
make_repositories() {
  git init -q -b main "$work/seed" && cd "$work/seed" || return
  for n in 1 2 3; do
    echo "$n" >file && git add file && git commit -q -m "commit $n" && git branch "topic-$n" || return
  done
  git branch "o'brien" && git tag v1 || return
  cd / && git clone -q --mirror "$work/seed" "$work/eu.git" && git clone -q --mirror "$work/seed" "$work/us.git"
}

title "1. A repository is imported into the global ref database"
make_repositories || fail "git could not make the repositories"
"$refdbctl" migrate up >/dev/null || fail "no schema"
say "database: ${REFDB_URL%%:*}; two sites, eu and us, each with a copy of $project"
show refs import "$project" --repo "$work/eu.git" || fail "the import"
show refs list "$project" || fail "the list"

# try_to_move SITE OLD: the site makes a commit of its own on OLD and asks for main.
try_to_move() {
  local new status
  new=$(site_git "$1" commit-tree -p "$2" -m "by $1, round $round" "$2^{tree}") || exit 1
  "$refdbctl" refs put "$project" "$main" "$new" --old "$2" --site "$1" >/dev/null 2>"$work/$1.err"
  status=$?
  echo "$new" >"$work/$1.new"
  # Who was accepted moves its own copy; who was refused leaves it alone.
  [ $status != 0 ] || site_git "$1" update-ref "$main" "$new" "$2" || exit 1
  exit $status
}

title "2. Both sites move $main at the same time, $rounds times: each time exactly one may"
eu_won=0 us_won=0
for round in $(seq "$rounds"); do
  old=$(site_git eu rev-parse "$main")
  (try_to_move eu "$old") & eu=$!
  (try_to_move us "$old") & us=$!
  wait $eu; eu_status=$?
  wait $us; us_status=$?
  case $eu_status/$us_status in
    0/5) winner=eu loser=us; eu_won=$((eu_won + 1)) ;;
    5/0) winner=us loser=eu; us_won=$((us_won + 1)) ;;
    *) cat "$work"/*.err >&2; fail "round $round: the sites' statuses are $eu_status and $us_status, not one 0 and one 5" ;;
  esac
  # The one that was refused catches up, as replication would.
  site_git $loser fetch -q "$work/$winner.git" "+$main:$main" || fail "round $round: replication"
  [ "$(site_git eu rev-parse "$main")" = "$(site_git us rev-parse "$main")" ] || fail "round $round: the sites differ"
done
say "$rounds rounds: eu was accepted $eu_won times, us $us_won times, both 0 times, neither 0 times"
say "what the refused one was told in the last round:"
sed 's/^/     /' "$work/$loser.err"

title "3. Site us is killed with -9 while it holds the lock on $main"
stale=(--stale-after 2s --heartbeat 400ms)
"$refdbctl" lock "$project" "$main" --site us "${stale[@]}" -- sh -c 'echo "$REFDB_TOKEN" >"$0.part" && mv "$0.part" "$0" && exec sleep 600' "$work/token" &
holder=$!
for _ in $(seq 100); do [ -e "$work/token" ] && break; sleep 0.05; done
us_token=$(cat "$work/token" 2>/dev/null) || fail "us did not get the lock"
"$refdbctl" refs put "$project" "$main" "$(cat "$work/eu.new")" --old "$(site_git eu rev-parse "$main")" --site eu >/dev/null 2>"$work/eu.err"
[ $? = 3 ] || fail "a push through eu was not refused while us held the lock"
say "us holds it; a push through eu is refused meanwhile:"
sed 's/^/     /' "$work/eu.err"
kill -9 "$holder"; wait "$holder" 2>/dev/null; holder=
say "us is killed. Nobody renews its lock any more; after 2 s it is stale:"
for _ in $(seq 100); do
  [ "$("$refdbctl" locks list --project "$project" --stale -o json | tr -d '[:space:]')" = "[]" ] || break
  sleep 0.1
done
show locks list --project "$project" --stale
"$refdbctl" locks list --project "$project" --stale -o csv | grep -q "$main" || fail "the lock of the killed site did not become stale"

title "4. Site eu takes the lock over; the killed site's delayed write comes in"
old=$(site_git eu rev-parse "$main")
eu_new=$(site_git eu commit-tree -p "$old" -m "by eu, under its lock" "$old^{tree}")
us_new=$(site_git us commit-tree -p "$old" -m "by us, too late" "$old^{tree}")
cat >"$work/under_lock" <<'SCRIPT'
"$refdbctl" refs put "$REFDB_PROJECT" "$REFDB_REFS" "$us_new" --old "$old" --site us --token "$us_token" 2>"$work/us.err" >/dev/null
echo $? >"$work/us.status"
exec "$refdbctl" refs put "$REFDB_PROJECT" "$REFDB_REFS" "$eu_new" --old "$old" --site eu --token "$REFDB_TOKEN" >/dev/null
SCRIPT
refdbctl=$refdbctl work=$work old=$old eu_new=$eu_new us_new=$us_new us_token=$us_token \
  "$refdbctl" lock "$project" "$main" --site eu --try "${stale[@]}" -- sh "$work/under_lock" || fail "eu could not write under its lock"
[ "$(cat "$work/us.status")" = 4 ] || fail "the delayed write of us ended with status $(cat "$work/us.status"), not 4"
say "the write of us, with the token of the lock it had, is refused:"
sed 's/^/     /' "$work/us.err"
say "the write of eu, with the token of its own, is accepted"
site_git eu update-ref "$main" "$eu_new" "$old" && site_git us fetch -q "$work/eu.git" "+$main:$main" || fail "replication"

title "5. Both copies are compared with the global ref database"
for site in eu us; do
  show refs verify "$project" --repo "$work/$site.git" || fail "$site differs from the global ref database"
done
[ "$("$refdbctl" locks list --project "$project" -o json | tr -d '[:space:]')" = "[]" ] || fail "a lock was left over"

title "All as it should be, in $((SECONDS - started)) s"
