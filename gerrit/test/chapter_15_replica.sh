title "15. A replica at us"
# A replica has no REST, no index but that of groups, and no HTTP unless asked.
run_replica() {
	stop_gerrit us
	: >"$work/us/gerrit.log"
	"$java" "${gerrit_program[@]:1}" daemon --replica --headless --enable-httpd --console-log -d "$work/us/gerrit" >>"$work/us/gerrit.log" 2>&1 &
	gerrit[us]=$!
	processes+=($!)
	wait_for "Gerrit of us runs as a replica" grep -qs 'Gerrit Code Review .* ready$' "$work/us/gerrit.log"
}
at_eu() { rest eu "${@:2}" >/dev/null && status_is "$1"; }
found_at() { [[ $(rest "$1" GET "changes/?q=$2" | jq length) == 1 ]] && status_is 200 >/dev/null; }
# refs_of_us USER REF: as the replica shows it. It asks nobody for a password: who sends none is anonymous.
refs_of_us() { git -c http.extraHeader="Authorization: Basic $(printf %s "$1:secret" | base64)" ls-remote "$(url us)/a/team/app" "$2" 2>"$work/ls-remote" | cut -f1; }
shows() { [[ $(refs_of_us "$1" refs/heads/replicated) == "$(in_tree eu team/app rev-parse HEAD)" ]]; }
shows_nothing() { local refs; refs=$(refs_of_us "$1" refs/heads/replicated) && [[ -z $refs ]]; }
refuses() { ! refs_of_us "$1" HEAD >/dev/null && grep -q 'could not read Username' "$work/ls-remote"; }

saved() { [[ -s $work/us/gerrit/data/refdb/moves ]]; }
wait_for "Gerrit of us has saved its place" saved
run_replica
check "it is guarded" grep -q 'refdb: guarded by the daemon of the site us' "$work/us/gerrit.log"
wait_for "it compares what it has" grep -q 'refdb: everything was compared' "$work/us/gerrit.log"
clone eu team/app
commit eu team/app "for the replica"
check "a push at eu" push eu team/app HEAD:refs/heads/replicated
wait_for "the replica shows it" shows admin
check "and a clone has it" eval 'clone us team/app && in_tree us team/app cat-file -e origin/replicated'
check "it takes no push" not push us team/app HEAD:refs/heads/from-the-replica
check "as it says" reads 'not permitted\|not enabled\|unavailable\|403\|Forbidden'
check "whose branch is nowhere" eval '[[ -z $(global team/app refs/heads/from-the-replica) ]]'

# Revocations.
check "an account" at_eu 201 PUT accounts/carol '{"name":"Carol","email":"carol@example.com","http_password":"secret"}'
wait_for "may read at the replica" shows carol
check "a group with her" at_eu 201 PUT groups/carols '{"members":["carol"]}'
carols=$(rest eu GET groups/carols | jq -r .id)
block() { echo "{\"$1\":{\"refs/heads/replicated\":{\"permissions\":{\"read\":{\"rules\":{\"$carols\":{\"action\":\"BLOCK\"}}}}}}}"; }
check "her group may not read the branch" at_eu 200 POST projects/team%2Fapp/access "$(block add)"
wait_for "the replica does not show it to her" shows_nothing carol
check "but to others" shows admin
check "she leaves the group" at_eu 204 DELETE groups/carols/members/carol
wait_for "the replica shows it again" shows carol
check "her account is closed" at_eu 204 DELETE accounts/carol/active
wait_for "the replica lets her in no more" refuses carol
check "but others" shows admin

check "a change at eu" at_eu 201 POST changes/ '{"project":"team/app","branch":"master","subject":"while us was a replica"}'
number=$(sed 1d "$work/body" | jq -r ._number)
in_repository() { [[ -n $(value us team/app "refs/changes/$(printf %02d $((number % 100)))/$number/meta") ]]; }
wait_for "whose notes come to us" in_repository
check "the replica saves no place" not saved
check "nothing failed" not grep "can.t follow" "$work/us/gerrit.log"
site=us
check "gerrit check has no findings at us" check_gerrit
site=eu
stop_gerrit us
check "nor does it when it stops" not saved
start_gerrit us
wait_for "it is no replica any more: it finds what was made meanwhile" found_at us "change:$number"
wait_for "as it compares everything" grep -q 'refdb: everything was compared' "$work/us/gerrit.log"
wait_for "and saves its place again" saved
