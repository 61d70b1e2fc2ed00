title "11. One site fails for a while, the other works on"
source "$here/outage.sh"
begin_outages

# Frozen: longer than locks take to become stale (30 s), and then it goes on as if nothing had been.
loads eu a-eu b-eu
loads us a-us
go_on a-eu b-eu a-us
kill -STOP "${gerrit[eu]}"
go_on a-us
before=$(acknowledged a-us)
sleep "$seconds" # at least
wait_for "the JVM of eu was frozen for $seconds s; us went on" more_than $((before + 5)) a-us
kill -CONT "${gerrit[eu]}"
loads_end
wait_for "eu takes changes again" pushes_again eu
recovered a-eu b-eu a-us

loads eu c-eu d-eu
loads us c-us
go_on c-eu d-eu c-us
kill -STOP "${daemon[eu]}"
go_on c-us
before=$(acknowledged c-us)
commit eu team/app "while the daemon is frozen"
check "the daemon of eu is frozen: a push there is refused" took not push eu team/app HEAD:refs/heads/frozen
check "its user reads why" reads 'remote: refdb: the .*site daemon' # did not answer, or its session broke: what comes first
check "eu can be read" reads_at eu
sleep $((seconds - 10))
wait_for "after $seconds s; us went on" more_than $((before + 5)) c-us
kill -CONT "${daemon[eu]}"
loads_end
wait_for "eu takes changes again" pushes_again eu
recovered c-eu d-eu c-us

# One thread is held. The others go on.
held_push() { # REF: in the background, as $pushing
	commit eu team/app "to be ${1##*/}"
	in_tree eu team/app push origin "HEAD:$1" "HEAD:$1-2" >"$work/held-push" 2>&1 &
	pushing=$!
}
survives_a_restart() { # LOAD REF
	held_push "$2"
	wait_for "a thread of eu is held" is_held
	loads eu "$1-eu"
	loads us "$1-us"
	go_on "$1-eu" "$1-us"
	kill_daemon eu
	start_daemon eu
	local before
	before=$(acknowledged "$1-eu")
	wait_for "the daemon was killed and started meanwhile; other threads go on" more_than $((before + 3)) "$1-eu"
	# What was offered a moment ago may be gone: the other threads force their branches.
	await in_tree us team/app fetch -q || fail "nothing can be fetched from us"
	check "nobody else can move that ref: not at us" not push us team/app "HEAD:$2"
	check "nor at eu" not push eu team/app "HEAD~1:$2"
	sleep 12 # longer than a daemon takes until it looks at the database again, unless the machine is slow
	check "nor later" not push us team/app "HEAD:$2"
	check "it is still held" kill -0 "$pushing"
	check "let go" let_go
	check "its push succeeds" wait "$pushing"
	loads_end
	check "and the branch is what was pushed" [ "$(global team/app "$2")" == "$(in_tree eu team/app rev-parse HEAD)" ]
	recovered "$1-eu" "$1-us"
}
check "the next thread with an OK will be held before it moves refs" hold $before_the_batch
survives_a_restart e refs/heads/held-before
check "the next thread that has moved refs will be held before it reports that" hold $before_the_report
survives_a_restart f refs/heads/held-after

for site in eu us; do check "gerrit check has no findings at $site" check_gerrit; done
