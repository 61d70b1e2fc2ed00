title "4. Crashes under load"
loads eu x y z
for round in 1 2 3 4; do
	go_on x y z
	kill_daemon eu
	start_daemon eu
done
for name in x y z; do wait_for "the daemon was killed 4 times; pushes to $name went on" more_than 5 $name; done
loads_end
wait_for "nothing is open" nothing_open_at eu
check "what was acknowledged is in the repository and in the database" acknowledged_is_there eu x y z
check "all refs" same eu team/app
check "nobody found a fault" eval 'site eu check team/app >"$work/check" || { cat "$work/check"; false; }'

loads eu x y z
go_on x y z
stop_gerrit eu KILL
loads_end
wait_for "Gerrit was killed in the middle: its daemon settles what was open" nothing_open_at eu
check "what was acknowledged is there" acknowledged_is_there eu x y z
check "the database has what the repository has" same eu team/app
start_gerrit eu
to_master_again() { commit eu team/app "after the crash" && push eu team/app HEAD:refs/heads/master; }
check "and Gerrit takes pushes again" to_master_again
