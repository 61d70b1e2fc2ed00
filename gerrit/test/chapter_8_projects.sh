title "8. Projects are created and deleted together"
stop_gerrit eu
stop_gerrit us
for site in eu us; do
	kill_daemon $site TERM
	mkdir "$work/$site/removed"
	git config -f "$work/$site/refdb.config" site.autoClone true
	git config -f "$work/$site/refdb.config" site.followRemoval "$work/$site/removed"
	"$java" -Xmx700m -jar "$war" init --batch --no-auto-start --install-plugin=delete-project -d "$work/$site/gerrit" >"$work/$site/init.log" 2>&1
	start_daemon $site
	start_gerrit $site
done
encoded() { jq -rn --arg n "$1" '$n|@uri'; }
has_directory() { [[ -e $(root "$1")/$2.git ]]; }
# create SITE PROJECT: its status is in $work/created-SITE, what the user reads in $work/says-SITE.
create() {
	curl -s -u admin:secret -X PUT -H 'Content-Type: application/json' -d '{"create_empty_commit":true}' \
		"$(url "$1")/a/projects/$(encoded "$2")" -o "$work/says-$1" -w '%{http_code}' >"$work/created-$1" || true
}
comes_to_us() { has_directory us "$1" && follows "$@"; }
created() { [[ $(<"$work/created-$1") == "$2" ]] || { cat "$work/created-$1" "$work/says-$1"; return 1; }; }
user_reads() { grep -q -e "$2" "$work/says-$1" || { cat "$work/says-$1"; return 1; }; }
creates() { create "$1" "$2" && [[ $(<"$work/created-$1") == 201 ]]; }
nothing_is_left() { ! has_directory "$1" "$2" && [[ -z $(global "$2" refs/meta/config) ]]; }

check "a project is created at eu" creates eu made/here
wait_for "it comes to us" comes_to_us made/here refs/heads/master
check "whose Gerrit has it" eval 'rest us GET projects/made%2Fhere >/dev/null && status_is 200'

both_at_once() {
	create eu "$1" & local eu=$!
	create us "$1"
	wait $eu
	local got="$(<"$work/created-eu") $(<"$work/created-us")"
	case $got in
	"201 409") loser=us ;;
	"409 201") loser=eu ;;
	*) echo "$got"; cat "$work"/says-*; return 1 ;;
	esac
	user_reads $loser 'already exists, perhaps just created at another site'
}
for n in 1 2 3 4; do
	check "created at both sites at once, round $n: one wins, the other's user reads so" both_at_once "both/$n"
	wait_for "and both sites have it" eval 'has_directory eu both/$n && comes_to_us both/$n refs/meta/config && same eu both/$n && same us both/$n'
done

kill_daemon eu
create eu made/later
check "without the daemon none is created: 503" created eu 503
check "its user reads why" user_reads eu 'the site daemon does not answer'
check "nothing is left of it" nothing_is_left eu made/later
start_daemon eu
wait_for "with the daemon back it can be created at once" creates eu made/later

create_late() { create eu made/refused; }
held() { # COMMAND...: while somebody else has the project's first ref
	refdbctl lock made/refused refs/meta/config -- sh -c "touch $work/locked; while [ -e $work/locked ]; do sleep 0.1; done" >/dev/null 2>&1 &
	local holder=$!
	await test -e "$work/locked" || return 1
	"$@"
	local status=$?
	rm -f "$work/locked"
	wait $holder
	return $status
}
held create_late
check "a creation whose first ref is refused fails" eval '[[ $(<"$work/created-eu") != 201 ]]'
wait_for "nothing is left of it" nothing_is_left eu made/refused

killed_while_creating() {
	create eu made/refused & local creating=$!
	await has_directory eu made/refused || return 1
	stop_gerrit eu KILL
	wait $creating
	rm -f "$work/locked"
}
wait_for "after a while the name can be used again" creates eu made/refused
sed 's#made/refused#made/killed#g' >"$work/killed.sh" < <(declare -f held killed_while_creating)
source "$work/killed.sh"
held killed_while_creating
wait_for "Gerrit was killed while it created a project: nothing is left of that" nothing_is_left eu made/killed
check "us has never had it" eval '! has_directory us made/killed'
start_gerrit eu
wait_for "after a while it can be created" creates eu made/killed
wait_for "and comes to us" comes_to_us made/killed refs/meta/config

delete() { rest "$1" POST "projects/$(encoded "$2")/delete-project~delete" '{"force":true}' >/dev/null; status_is 204; }
clone us made/here
commit us made/here "before the deletion"
check "a push at us, to a project that is deleted then" push us made/here HEAD:refs/heads/master
wait_for "which eu has" follows made/here refs/heads/master
check "the project is deleted at eu" delete eu made/here
create eu made/here
check "created again at once" eval '[[ $(<"$work/created-eu") == 503 ]]'
check "its user reads when that goes" user_reads eu 'has just been removed: nothing was changed, try again in'
aside() { ! has_directory us made/here && compgen -G "$work/us/removed/refdb-removed-*Z/made/here.git/HEAD" >/dev/null; }
wait_for "at us it goes aside" aside
check "the audit says why" eval 'refdbctl audit list | grep -q "project remove"'
wait_for "it can be created again" creates eu made/here
wait_for "and comes to us" comes_to_us made/here refs/heads/master
check "us has what was made since, and nothing of before" eval 'same us made/here && same eu made/here'
check "its Gerrit writes all objects of a push" eval 'clone us made/here && commit us made/here "after the deletion" && push us made/here HEAD:refs/heads/master && repo us made/here fsck --connectivity-only >/dev/null 2>&1'
wait_for "which eu has, too" follows made/here refs/heads/master

mv "$(root eu)/both/1.git" "$work/away"
vanished() { site eu status >"$work/eu/status" 2>&1; grep -q 'both/1.*it was here and is missing' "$work/eu/status"; }
wait_for "a repository that vanishes is an alarm" vanished
check "it is neither cloned again nor removed at us" eval '! has_directory eu both/1 && has_directory us both/1 && same us both/1'
mv "$work/away" "$(root eu)/both/1.git"
wait_for "it is back" eval 'site eu status >"$work/eu/status" 2>&1; ! grep -q "both/1" "$work/eu/status"'
