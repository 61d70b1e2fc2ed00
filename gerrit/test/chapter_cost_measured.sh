# Measured, not checked: what the guard costs. The same requests go to the guarded Gerrit and to one without a guard, in turns.
title "What the guard costs"
GERRIT_PORT_plain=$(free_port 32000 700)
export GERRIT_PORT_plain
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
percentile() { sort -n "$1" | awk -v p="$2" '{v[NR] = $1} END {print v[int((NR - 1) * p / 100) + 1]}'; }
turns=${GERRIT_TEST_TURNS:-60}
# one_client HOW: one request after the other.
one_client() {
	local n site value sites what
	for ((n = -5; n <= turns; n++)); do
		[[ $n != 1 ]] || rm -f "$work"/{create,vote,submit,push\ for\ review}-* # the first six warm up
		sites=(eu plain)
		[[ $((n % 2)) == 0 ]] || sites=(plain eu)
		for site in "${sites[@]}"; do create_once $site "$n" || fail "create at $site"; done
		for value in 1 2; do for site in "${sites[@]}"; do vote_once $site $value || fail "vote at $site"; done; done
		for site in "${sites[@]}"; do submit_once $site || fail "submit at $site"; done
		for site in "${sites[@]}"; do for_review_once $site "$n" || fail "push at $site"; done
	done
	printf '   %-32s %8s %8s %8s %8s %8s\n' "$1: ms (p50, p90)" guarded "" plain "" "p50 more"
	for what in create vote submit "push for review"; do
		printf '   %-32s %8s %8s %8s %8s %8s\n' "$what" "$(percentile "$work/$what-eu" 50)" "$(percentile "$work/$what-eu" 90)" "$(percentile "$work/$what-plain" 50)" \
			"$(percentile "$work/$what-plain" 90)" $(($(percentile "$work/$what-eu" 50) - $(percentile "$work/$what-plain" 50)))
	done
}

# Each client has a change of its own, on which it votes again and again.
votes() { # SITE CLIENT UNTIL
	local n=0 value
	while [[ $SECONDS -lt $3 ]]; do
		value=$((n % 2 + 1))
		[[ $(curl -s -u admin:secret -H 'Content-Type: application/json' -d "{\"labels\":{\"Code-Review\":$value}}" -o /dev/null -w '%{http_code}' \
			"$(url "$1")/a/changes/$(<"$work/change-$1-$2")/revisions/current/review") == 200 ]] || { echo "no" >>"$work/votes-failed"; return 1; }
		n=$((n + 1))
	done
	echo $n >"$work/votes-$1-$2"
}
clients=${GERRIT_TEST_CLIENTS:-32}
# throughput SITE: votes in 10 seconds, as $voted.
throughput() {
	local client clients_of=()
	for ((client = 0; client < clients; client++)); do
		votes "$1" $client $((SECONDS + 10)) &
		clients_of+=($!)
	done
	wait "${clients_of[@]}"
	voted=$(cat "$work"/votes-"$1"-* | awk '{n += $1} END {print n}')
}
many_clients() {
	local site client round
	for site in eu plain; do
		for ((client = 0; client < clients; client++)); do
			create_once $site "of client $client" || fail "create at $site"
			cp "$work/cost-$site" "$work/change-$site-$client"
		done
	done
	for round in 0 1 2 3; do
		local sites=(eu plain)
		[[ $((round % 2)) == 0 ]] || sites=(plain eu)
		for site in "${sites[@]}"; do
			throughput $site
			[[ $round == 0 ]] || echo "$voted" >>"$work/throughput-$site" # the first warms up
		done
	done
	[[ ! -e $work/votes-failed ]] || fail "a vote"
	printf '   %-32s %8s %8s %8s\n' "votes in 10 s of $clients clients" guarded plain ratio
	paste "$work/throughput-eu" "$work/throughput-plain" | awk '{printf "   %-32s %8d %8d %8.2f\n", "", $1, $2, $1 / $2}'
}
restart_daemon() {
	kill_daemon eu TERM
	start_daemon eu
	wait_for "the guard has its session" guarded_is_seen
}
# What is measured: all, or some of these.
for cost in ${GERRIT_TEST_COSTS:-database clients local far}; do
	case $cost in
	database) one_client "objects durable in the database" ;;
	clients) many_clients ;;
	local)
		git config -f "$work/eu/refdb.config" site.durability local
		restart_daemon
		one_client "durability = local"
		git config -f "$work/eu/refdb.config" --unset site.durability
		restart_daemon
		;;
	far)
		[[ ${far_database:--} != - ]] || { echo "left out: a database 20 ms away, which needs REFDB_URL=postgres" && continue; }
		REFDB_URL=$far_database restart_daemon
		one_client "database 20 ms away"
		restart_daemon
		;;
	esac
done
