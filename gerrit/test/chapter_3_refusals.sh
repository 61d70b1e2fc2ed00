title "3. What is refused, and what the user reads"
# locked REF COMMAND...: the command, while somebody else has the ref's lock in the database.
locked() {
	refdbctl lock team/app "$1" -- sh -c "touch $work/locked; while [ -e $work/locked ]; do sleep 0.1; done" >/dev/null 2>&1 &
	local holder=$!
	await test -e "$work/locked" || return 1
	"${@:2}"
	local status=$?
	rm "$work/locked"
	wait $holder
	return $status
}
commit eu team/app locked
to_master() { push eu team/app HEAD:refs/heads/master; }
check "a push to a ref that somebody else has locked" locked refs/heads/master not to_master
check "its user reads why" reads 'remote: refdb: refs/heads/master.*locked'
check "the branch is where it was, also in the database" same eu team/app
check "the same push, later" to_master

check "somebody moved the branch elsewhere, to a commit that is not here" eval 'refdbctl refs put team/app refs/heads/master 1111111111111111111111111111111111111111 --force >/dev/null'
commit eu team/app behind
check "a push is refused" not to_master
check "its user reads why" reads 'remote: refdb: .*behind'
create_change() { rest eu POST changes/ "{\"project\":\"team/app\",\"branch\":\"$1\",\"subject\":\"$2\"}" && status_is "$3"; }
refdbctl refs put team/app refs/heads/master "$(value eu team/app refs/heads/master)" --force >/dev/null
check "once they agree it goes through" to_master

kill_daemon eu
commit eu team/app "without a daemon"
check "without the daemon a push is refused" not to_master
check "its user reads why" reads 'remote: refdb: the site daemon does not answer'
check "a change can't be made: 503" eval 'create_change master "without a daemon" 503 >/dev/null'
check "with the reason" body_has 'the site daemon does not answer'
check "all can be read" eval 'rest eu GET "changes/?q=project:team/app" >/dev/null && status_is 200'
check "and fetched" in_tree eu team/app fetch -q
check "nothing was moved" eval '[[ $(value eu team/app refs/heads/master) == $(in_tree eu team/app rev-parse HEAD~1) ]]'
start_daemon eu
wait_for "with the daemon back Gerrit goes on by itself" to_master
check "the database has what the repository has" same eu team/app
