title "7. The indexes and caches of us follow what is done at eu"
now_ms() { date +%s%3N; }
# soon WHAT COMMAND...: a promise that is kept soon from now on. It prints how soon, which depends on the machine.
soon() {
	local began
	began=$(now_ms)
	await "${@:2}" || fail "$1: never"
	check "$1 (after $(($(now_ms) - began)) ms)" true
}
# found SITE QUERY: a change matches.
found() { [[ $(rest "$1" GET "changes/?q=$2" | jq length) -gt 0 ]]; }
uri() { jq -rn --arg n "$1" '$n|@uri'; }
status_of() { rest "${@:2}" >/dev/null; status_is "$1" >/dev/null; }
done_at_eu() { status_of "$@" || fail "at eu: $* answered $(<"$work/status") $(<"$work/body")"; }
compared() { [[ $(grep -c 'refdb: everything was compared' "$work/$1/gerrit.log") -ge $2 ]]; }
new_change() { rest eu POST changes/ "{\"project\":\"${2:-team/app}\",\"branch\":\"master\",\"subject\":\"$1\"}" | jq -r ._number; }

gerrit_config us sshd.listenAddress "127.0.0.1:$((GERRIT_PORT_us + 1000))"
[[ -e $work/us/gerrit/etc/ssh_host_ed25519_key ]] || ssh-keygen -q -t ed25519 -N '' -f "$work/us/gerrit/etc/ssh_host_ed25519_key"
for index in accounts changes_open changes_closed groups projects; do gerrit_config us index.$index.commitWithin "30 s"; done
rm -f "$work/us/gerrit/data/refdb/moves"
stop_gerrit us KILL
start_gerrit us
wait_for "a Gerrit that has saved no place compares everything" compared us 1
check "and finds little to do" eval 'grep "refdb: everything was compared" "$work/us/gerrit.log"'

# Changes.
commit eu team/app "to be followed"
for_review eu team/app
number=$(rest eu GET "changes/?q=subject:%22to+be+followed%22" | jq -r '.[0]._number')
wait_for "a change that was pushed at eu is found at us" found us "change:$number"
done_at_eu 200 eu POST "changes/$number/revisions/current/review" '{"labels":{"Code-Review":2}}'
soon "a vote" found us "change:$number+label:Code-Review=2"
done_at_eu 200 eu PUT "changes/$number/topic" '{"topic":"followed"}'
soon "a topic" found us topic:followed
done_at_eu 204 eu PUT "accounts/self/starred.changes/$number"
soon "a star" found us "is:starred+change:$number"
done_at_eu 201 eu PUT "changes/$number/revisions/current/drafts" '{"path":"/PATCHSET_LEVEL","message":"a draft"}'
soon "a draft" found us "has:draft+change:$number"
done_at_eu 200 eu POST "changes/$number/abandon" '{}'
soon "that it was abandoned" found us "status:abandoned+change:$number"
done_at_eu 200 us POST "changes/$number/restore" '{}'
soon "and at eu that it was restored at us" found eu "status:open+change:$number"
ready=$(new_change "to be submitted")
soon "one that was made in the web" found us "change:$ready"
done_at_eu 200 eu POST "changes/$ready/revisions/current/review" '{"labels":{"Code-Review":2}}'
done_at_eu 200 eu POST "changes/$ready/submit" '{}'
soon "that it was submitted" found us "status:merged+change:$ready"
gone=$(new_change "to be deleted")
soon "one that will be deleted" found us "change:$gone"
done_at_eu 204 eu DELETE "changes/$gone"
soon "and is then found no more" not found us "change:$gone"
done_at_eu 201 eu PUT projects/team%2Fapp/branches/followed '{"revision":"master"}'
soon "a new branch" status_of 200 us GET projects/team%2Fapp/branches/followed

# Accounts, groups, permissions. What is revoked is revoked first.
done_at_eu 201 eu PUT accounts/bob '{"name":"Bob","email":"bob@example.com","http_password":"secret"}'
bob=$(jq -s -R -r 'ltrimstr(")]}\u0027\n") | fromjson | ._account_id' "$work/body")
as_bob() { as=bob:secret status_of "$@"; }
soon "a new account is found" eval '[[ $(rest us GET "accounts/?q=username:bob" | jq length) == 1 ]]'
soon "and may log in" as_bob 200 us GET accounts/self
done_at_eu 201 eu PUT groups/readers '{}'
soon "a new group" status_of 200 us GET groups/readers
groups_of_bob() { rest us GET accounts/bob/groups | jq -r '.[].name' | grep -q -x "$1"; }
check "which Bob is not in" not groups_of_bob readers
done_at_eu 201 eu PUT groups/readers/members/bob
soon "he was added" groups_of_bob readers
done_at_eu 204 eu DELETE groups/readers/members/bob
soon "he was removed" not groups_of_bob readers
done_at_eu 201 eu PUT groups/readers/members/bob
soon "and is in again" groups_of_bob readers
done_at_eu 200 eu PUT groups/readers/name '{"name":"watchers"}'
soon "the group was renamed" groups_of_bob watchers

ssh-keygen -q -t ed25519 -N '' -f "$work/key"
ssh_in() { ssh -p $((GERRIT_PORT_us + 1000)) -i "$work/key" -F none -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "${1:-bob}@127.0.0.1" gerrit version >"$work/ssh" 2>&1; }
check "without a key Bob can't use SSH at us" not ssh_in
curl -s -u admin:secret -X POST -H 'Content-Type: text/plain' --data-binary @"$work/key.pub" "$(url eu)/a/accounts/bob/sshkeys" -o "$work/body"
soon "with one that he gets at eu he can" ssh_in
soon "also under another spelling of his name" ssh_in Bob
done_at_eu 204 eu DELETE accounts/bob/sshkeys/1
soon "until it is removed" not ssh_in
soon "under each spelling" not ssh_in Bob
curl -s -u admin:secret -X POST -H 'Content-Type: text/plain' --data-binary @"$work/key.pub" "$(url us)/a/accounts/bob/sshkeys" -o "$work/body"
soon "with one that he gets at us he can" ssh_in
soon "under each spelling" ssh_in Bob
done_at_eu 204 us DELETE "accounts/bob/sshkeys/$(sed 1d "$work/body" | jq -r .seq)"
soon "until it is removed there" not ssh_in
soon "under each spelling, also at the site that removed it" not ssh_in Bob

read_app() { as_bob "$1" us GET projects/team%2Fapp/branches/master; }
block() { echo "{\"$1\":{\"refs/heads/master\":{\"permissions\":{\"read\":{\"rules\":{\"$(rest eu GET groups/watchers | jq -r .id)\":{\"action\":\"BLOCK\"}}}}}}}"; }
check "Bob can read a branch" read_app 200
done_at_eu 200 eu POST projects/team%2Fapp/access "$(block add)"
soon "until his group may not" read_app 404
done_at_eu 200 eu POST projects/team%2Fapp/access "$(block remove)"
soon "and may again" read_app 200
done_at_eu 200 eu POST projects/All-Projects/access "$(block add)"
soon "until nobody of it may in any project" read_app 404
done_at_eu 200 eu POST projects/All-Projects/access "$(block remove)"
soon "and may again" read_app 200

done_at_eu 204 eu DELETE "accounts/$bob/active"
soon "Bob is not active any more" as_bob 401 us GET accounts/self
done_at_eu 201 eu PUT "accounts/$bob/active"
soon "and is again" as_bob 200 us GET accounts/self
# In Gerrit 3.13 a password that an account was made with goes on after that, also at the same site.
if [[ $version == 3.9.* ]]; then
	done_at_eu 204 eu DELETE accounts/bob/password.http
	soon "his password was removed" as_bob 401 us GET accounts/self
else
	echo "   left out: Gerrit $version does not remove his password"
fi

# Projects.
new_project eu team/second
fresh=$(new_change "of a new project" team/second)
wait_for "its repository comes to us" [ -e "$(root us)/team/second.git/HEAD" ]
soon "Gerrit of us has the project" status_of 200 us GET projects/team%2Fsecond
soon "also on its list" eval 'rest us GET "projects/?p=team/second" | jq -e ".[\"team/second\"]" >/dev/null'
soon "and in the index" eval '[[ $(rest us GET "projects/?query=name:team/second" | jq length) == 1 ]]'
soon "and its change" found us "change:$fresh"

# How soon: from eu's answer to us' query.
took=()
for n in $(seq 50); do
	done_at_eu 200 eu PUT "changes/$number/topic" "{\"topic\":\"latency-$n\"}"
	began=$(now_ms)
	until found us "topic:latency-$n"; do [[ $(now_ms) -lt $((began + patience * 1000)) ]] || fail "topic $n is not found"; sleep 0.005; done
	took+=($(($(now_ms) - began)))
done
check "50 changed topics are found after $(printf '%s\n' "${took[@]}" | sort -n | awk '{a[NR] = $1} END {printf "%d ms (p50), %d ms (p99)", a[25], a[50]}')" true

# Crashes.
places() { cat "$work/us/gerrit/data/refdb/moves"; }
saved_place() { places | tail -n 1 | cut -d' ' -f2; }
moved_from() { [[ $(saved_place) != "$1" ]]; }
# saves CHANGE: what us does itself moves the place on, which is then behind all before.
saves() {
	local before
	before=$(saved_place)
	done_at_eu 200 us POST "changes/$1/revisions/current/review" "{\"message\":\"$before\"}"
	await moved_from "$before" || fail "no place is saved"
}
numbers=()
for n in 1 2 3 4 5 6 7 8; do numbers+=("$(new_change "before the crash $n")"); done
wait_for "a place is so old that the indexes were committed since" eval 'places | grep -q "^committed "'
own=$(rest us POST changes/ '{"project":"team/app","branch":"master","subject":"by us before the crash"}' | jq -r ._number)
check "a Gerrit finds what it has made itself" found us "change:$own"
saves "$own"
saves "$own"
stop_gerrit us KILL
for n in 1 2 3; do numbers+=("$(new_change "during the crash $n")"); done
done_at_eu 200 eu PUT "changes/$number/topic" '{"topic":"while-us-was-down"}'
start_gerrit us
all_found() {
	local n
	for n in "${numbers[@]}" "$own"; do found us "change:$n" || return 1; done
}
wait_for "Gerrit of us was killed: after its start it finds all, also what it had indexed itself and lost" all_found
wait_for "and what was changed meanwhile" found us topic:while-us-was-down
follows_on() { grep -q 'follow the list of moves from the saved place on' "$work/us/gerrit.log" && ! grep -q 'everything is compared' "$work/us/gerrit.log"; }
check "without comparing everything" follows_on

stop_gerrit us
check "stopped in order it leaves its place" grep -q -x 'committed [^ ]*' "$work/us/gerrit/data/refdb/moves"
numbers=("$(new_change "while us was stopped")")
start_gerrit us
wait_for "and goes on from there" all_found
check "also without comparing everything" follows_on

kill_daemon us
numbers=("$(new_change "without the daemon of us")")
check "without its daemon Gerrit of us goes on serving" found us "change:$number"
start_daemon us
wait_for "and follows again when there is one" all_found
wait_for "as it says" grep -q "indexes and caches follow the list of moves again" "$work/us/gerrit.log"

kill_daemon us
before=$(grep -c 'refdb: everything was compared' "$work/us/gerrit.log" || true)
rm -r "$work/us/state/moves"
check "Bob is in a group" groups_of_bob watchers
done_at_eu 204 eu DELETE groups/watchers/members/bob
numbers=("$(new_change "before the list was lost")")
start_daemon us
wait_for "a list of moves that was lost: everything is compared" compared us $((before + 1))
wait_for "and nothing is missing" all_found
check "nor is anything left: Bob is out of the group" not groups_of_bob watchers
check "nothing failed" eval '! grep "can.t follow" "$work/us/gerrit.log"'
