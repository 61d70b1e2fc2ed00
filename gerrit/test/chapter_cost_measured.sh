# Measured, not checked: what the guard costs. The same requests go to the guarded Gerrit and to one without a guard, in turns.
title "What the guard costs"
export GERRIT_PORT_plain=$((32000 + RANDOM % 700))
mkdir -p "$work/plain"
check "a Gerrit without a guard" init_gerrit plain
configure_gerrit plain
for name in fsyncObjectFiles fsyncRefFiles; do git config -f "$work/plain/gerrit/etc/jgit.config" core.$name true; done
start_gerrit plain
check "with a project" new_project plain team/app
clone plain team/app
clone eu team/app

# timed FILE COMMAND...: adds the milliseconds that it took.
timed() {
	local began=$EPOCHREALTIME
	"${@:2}" || return 1
	echo $(((${EPOCHREALTIME/./} - ${began/./}) / 1000)) >>"$work/$1"
}
for_review_once() { commit "$1" team/app "cost $2" && timed "push for review-$1" push "$1" team/app HEAD:refs/for/master && in_tree "$1" team/app reset -q --hard HEAD~1; }
vote_once() { timed "vote-$1" rest "$1" POST "changes/$(<"$work/cost-$1")/revisions/current/review" "{\"labels\":{\"Code-Review\":$2}}" >/dev/null && status_is 200; }
submit_once() { timed "submit-$1" rest "$1" POST "changes/$(<"$work/cost-$1")/submit" '{}' >/dev/null && status_is 200; }
create_once() {
	timed "create-$1" rest "$1" POST changes/ "{\"project\":\"team/app\",\"branch\":\"master\",\"subject\":\"cost $2\"}" >"$work/created" && status_is 201
	echo "team%2Fapp~$(jq -r ._number "$work/created")" >"$work/cost-$1"
}
turns=${GERRIT_TEST_TURNS:-60}
for ((n = -5; n <= turns; n++)); do
	[[ $n != 1 ]] || rm -f "$work"/{create,vote,submit,push\ for\ review}-* # the first five warm up
	sites=(eu plain)
	[[ $((n % 2)) == 0 ]] || sites=(plain eu)
	for site in "${sites[@]}"; do create_once $site "$n" || fail "create at $site"; done
	for value in 1 2; do for site in "${sites[@]}"; do vote_once $site $value || fail "vote at $site"; done; done
	for site in "${sites[@]}"; do submit_once $site || fail "submit at $site"; done
	for site in "${sites[@]}"; do for_review_once $site "$n" || fail "push at $site"; done
done
percentile() { sort -n "$1" | awk -v p="$2" '{v[NR] = $1} END {print v[int((NR - 1) * p / 100) + 1]}'; }
printf '   %-18s %8s %8s %8s %8s\n' "ms (p50, p90)" guarded "" plain ""
for what in create vote submit "push for review"; do
	printf '   %-18s %8s %8s %8s %8s\n' "$what" "$(percentile "$work/$what-eu" 50)" "$(percentile "$work/$what-eu" 90)" "$(percentile "$work/$what-plain" 50)" "$(percentile "$work/$what-plain" 90)"
done
