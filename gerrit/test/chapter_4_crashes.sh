title "4. Crashes under load"
# load SECONDS NAME: pushes a branch of its own, again and again. Files have what was acknowledged last, and what was tried since.
load() {
	local until=$((SECONDS + $1)) n=0 tree
	tree=$(in_tree eu team/app rev-parse 'HEAD^{tree}')
	while [[ $SECONDS -lt $until ]]; do
		n=$((n + 1))
		local new
		new=$(in_tree eu team/app commit-tree -p HEAD -m "$2 $n $RANDOM" "$tree")
		echo "$new" >>"$work/tried-$2"
		if in_tree eu team/app push -q -f origin "$new:refs/heads/$2" >>"$work/load" 2>&1; then
			echo "$new" >"$work/acknowledged-$2"
			: >"$work/tried-$2"
		fi
	done
}
loads() {
	pids=()
	for name in x y z; do
		load "$1" $name &
		pids+=($!)
	done
}
acknowledged_is_there() {
	for name in x y z; do
		local value
		value=$(value eu team/app refs/heads/$name)
		# A push whose answer was lost may have been made.
		grep -q -x "$value" "$work/acknowledged-$name" "$work/tried-$name" || { echo "$name: $value was not acknowledged last"; return 1; }
		[[ $value == $(global team/app refs/heads/$name) ]] || { echo "$name: $value here, $(global team/app refs/heads/$name) in the database"; return 1; }
	done
}

loads 25
for round in 1 2 3 4; do
	sleep 4
	kill_daemon eu
	start_daemon eu
done
wait "${pids[@]}" || true
check "the daemon was killed 4 times; pushes went on" eval '[[ -s $work/acknowledged-x && -s $work/acknowledged-y && -s $work/acknowledged-z ]]'
nothing_open() { [[ $(metric eu refdb_site_intents_pending) == 0 ]]; }
wait_for "nothing is open" nothing_open
check "what was acknowledged is in the repository and in the database" acknowledged_is_there
check "all refs" same eu team/app
check "nobody found a fault" eval 'site eu check team/app >"$work/check" || { cat "$work/check"; false; }'

loads 12
sleep 6
stop_gerrit eu KILL
wait "${pids[@]}" || true
wait_for "Gerrit was killed in the middle: its daemon settles what was open" nothing_open
check "what was acknowledged is there" acknowledged_is_there
check "the database has what the repository has" same eu team/app
start_gerrit eu
to_master_again() { commit eu team/app "after the crash" && push eu team/app HEAD:refs/heads/master; }
check "and Gerrit takes pushes again" to_master_again
