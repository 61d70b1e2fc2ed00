title "1. A Gerrit is put under guard, as docs/GERRIT.md says"
mkdir -p "$work/eu"
check "a Gerrit of its own, without the guard" init_gerrit eu
configure_gerrit eu
start_gerrit eu
follow_page eu 1 2
unguarded_is_seen() { site eu status -o json >"$work/eu/status" 2>/dev/null || true; [[ $(jq -r .gerrit.state "$work/eu/status") == unguarded ]]; }
began=$SECONDS
wait_for "it runs without the guard: that is an alarm" unguarded_is_seen
echo "   (after $((SECONDS - began)) s)"
check "in the daemon's status" [ "$(jq .gerrit.pid "$work/eu/status")" == "${gerrit[eu]}" ]
check "and as a metric" eval '[[ $(metric eu refdb_site_gerrit_unguarded) == 1 ]]'
enabled_while_it_runs() { refdbctl gerrit enable "$work/eu/gerrit" --yes >"$work/enable" 2>&1; }
check "while it runs it can't be enabled" not enabled_while_it_runs
check "which says why" grep -q "Gerrit runs in .* (process ${gerrit[eu]}): stop it first" "$work/enable"
follow_page eu 3 5
check "it says that it is guarded" grep -q 'refdb: guarded by the daemon of the site eu' "$work/eu/gerrit.log"
guarded_is_seen() { site eu status -o json >"$work/eu/status" && [[ $(jq -r .gerrit.state "$work/eu/status") == guarded ]]; }
wait_for "the daemon sees that it is" guarded_is_seen
check_gerrit() { refdbctl gerrit check "$work/$site/gerrit" >"$work/check" 2>&1 || { cat "$work/check"; return 1; }; }
check "gerrit check has no findings" check_gerrit
