title "15. A replica at us"
# A replica has no REST, no index but that of groups, and no HTTP unless asked.
run_replica() {
	stop_gerrit us
	rm -f "$work/us/gerrit/data/refdb/moves" # which it has saved: everything is to be compared
	: >"$work/us/gerrit.log"
	"$java" "${gerrit_program[@]:1}" daemon --replica --headless --enable-httpd --console-log -d "$work/us/gerrit" >>"$work/us/gerrit.log" 2>&1 &
	gerrit[us]=$!
	processes+=($!)
	wait_for "Gerrit of us runs as a replica" grep -qs 'Gerrit Code Review .* ready$' "$work/us/gerrit.log"
}
run_replica
check "it is guarded" grep -q 'refdb: guarded by the daemon of the site us' "$work/us/gerrit.log"
wait_for "it compares what it has" grep -q 'refdb: everything was compared' "$work/us/gerrit.log"
clone eu team/app
commit eu team/app "for the replica"
check "a push at eu" push eu team/app HEAD:refs/heads/replicated
shows() { [[ $(git ls-remote "http://admin:secret@$(url us | cut -d/ -f3)/a/team/app" "$1" | cut -f1) == "$(in_tree eu team/app rev-parse HEAD)" ]]; }
wait_for "the replica shows it" shows refs/heads/replicated
check "and a clone has it" eval 'clone us team/app && in_tree us team/app cat-file -e origin/replicated'
check "it takes no push" not push us team/app HEAD:refs/heads/from-the-replica
check "a change at eu" for_review eu team/app
saved_anew() { [[ -s $work/us/gerrit/data/refdb/moves ]]; }
wait_for "it saves its place" saved_anew
check "nothing failed" not grep "can.t follow" "$work/us/gerrit.log"
site=us
check "gerrit check has no findings at us" check_gerrit
site=eu
stop_gerrit us
start_gerrit us
