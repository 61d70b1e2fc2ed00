title "6. A second Gerrit, at another site, as docs/GERRIT.md says"
before=$(global All-Projects refs/meta/config)
follow_page us 1 4
check "its init has moved nothing" eval '[[ $before == $(global All-Projects refs/meta/config) ]] && same us All-Projects && same us All-Users'
check "it has the server ID of eu, and an instance ID of its own" eval '[[ $(gerrit_config us gerrit.serverId) == $(gerrit_config eu gerrit.serverId) && $(gerrit_config us gerrit.instanceId) == gerrit-us ]]'
check "nor has it changed anything in the copy of etc" not grep '(by init)' "$work/join"
configure_gerrit us
follow_page us 5 5
site=us
check "gerrit check has no findings at us" check_gerrit
site=eu
check "nor at eu" check_gerrit

head_of() { repo "$1" team/app symbolic-ref HEAD; }
check "HEAD of a project came along" [ "$(head_of us)" == "$(head_of eu)" ]
head_is_master() { rest eu PUT projects/team%2Fapp/HEAD '{"ref":"refs/heads/master"}' >/dev/null && status_is 200; }
check "HEAD points elsewhere at eu" head_is_master
wait_for "and at us" eval '[[ $(head_of us) == refs/heads/master ]]'

commit eu team/app "for both sites"
check "a change at eu" for_review eu team/app
follows() { [[ $(value us "$1" "$2") == $(value eu "$1" "$2") && -n $(value us "$1" "$2") ]]; }
number=$(rest eu GET "changes/?q=subject:%22for+both+sites%22" | jq -r '.[0]._number')
ref=refs/changes/$(printf %02d $((number % 100)))/$number
wait_for "its notes are in the repository of us" follows team/app "$ref/meta"
wait_for "and its patch set" follows team/app "$ref/1"
check "with its commit" eval '[[ $(repo us team/app cat-file -t "$ref/1") == commit ]]'
check "to us its Gerrit can push, on top of what eu has" eval 'clone us team/app && commit us team/app "from us" && push us team/app HEAD:refs/heads/master'
wait_for "and eu has it" follows team/app refs/heads/master
# Both at the same time: one is accepted, or both, one after the other. Never two values.
race() {
	local pids=()
	in_tree eu team/app fetch -q
	in_tree us team/app fetch -q
	in_tree eu team/app reset -q --hard origin/master
	in_tree us team/app reset -q --hard origin/master
	commit eu team/app "race $1 eu"
	commit us team/app "race $1 us"
	in_tree eu team/app push -q origin HEAD:refs/heads/master >"$work/race-eu" 2>&1 & pids+=($!)
	in_tree us team/app push -q origin HEAD:refs/heads/master >"$work/race-us" 2>&1 & pids+=($!)
	local accepted=0
	for pid in "${pids[@]}"; do wait "$pid" && accepted=$((accepted + 1)); done
	[[ $accepted -le 1 ]] || { echo "both were accepted"; return 1; }
	won=$((won + accepted))
	await follows team/app refs/heads/master
}
won=0
for n in 1 2 3 4 5 6; do check "a race, round $n: never both" race "$n"; done
check "somebody has won" [ "$won" -gt 0 ]
same_at_both() { same eu "$1" && same us "$1"; }
for project in team/app All-Projects All-Users; do wait_for "$project is the same at both sites" same_at_both "$project"; done
# compares SITE: its Gerrit compares its indexes with the repositories, now.
compares() {
	local since
	since=$(date -u -d "-1 second" +%FT%TZ)
	sleep 1 # the times have whole seconds
	refdbctl gerrit check "$work/$1/gerrit" --compare >"$work/check" 2>&1 || return 1
	wait_for "the indexes of $1 are compared" compared "$1" "$since"
}
indexes() { refdbctl gerrit check "$work/$1/gerrit" -o json 2>/dev/null | jq -e "${@:2}" >"$work/indexes"; }
compared() { indexes "$1" --arg since "$2" '.indexes | .state == "compared" and (.asked | not) and .time > $since'; }
none_is_stale() { indexes "$1" '.indexes.stale == 0'; }
for site in eu us; do
	# Gerrit does not index projects whose parent has changed: the first comparison does.
	for n in 1 2; do check "gerrit check --compare at $site" compares $site; done
	check "nothing is stale there" none_is_stale $site
done
