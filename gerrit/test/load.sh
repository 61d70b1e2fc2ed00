# Sourced: pushes that go on while something fails, and whether what was acknowledged is there afterwards.

# load SITE NAME: pushes a branch of its own, again and again, until loads_end. Files have what was acknowledged, and what was tried since.
load() {
	local n=0 tree new
	tree=$(in_tree "$1" team/app rev-parse 'HEAD^{tree}')
	until [[ -e $work/loads-end ]]; do
		n=$((n + 1))
		new=$(in_tree "$1" team/app commit-tree -p HEAD -m "$2 $n $RANDOM" "$tree")
		echo "$new" >>"$work/tried-$2"
		if in_tree "$1" team/app push -q -f origin "$new:refs/heads/$2" >>"$work/load-$2" 2>&1; then
			echo "$new" >>"$work/acknowledged-$2"
			: >"$work/tried-$2"
		fi
	done
}
# loads SITE NAME...: in the background, as $pids.
loads() {
	local name
	for name in "${@:2}"; do
		load "$1" "$name" &
		pids+=($!)
		processes+=($!)
	done
}
loads_end() {
	touch "$work/loads-end"
	wait "${pids[@]}" || true
	pids=()
	rm "$work/loads-end"
}
pids=()
# acknowledged NAME...: how many pushes of these loads were, so far.
acknowledged() {
	local name
	for name; do cat "$work/acknowledged-$name" 2>/dev/null || true; done | wc -l
}
# more_than N NAME...: so many pushes of these loads were acknowledged, and more.
more_than() { [[ $(acknowledged "${@:2}") -gt $1 ]]; }
# go_on LOAD...: waits until each of these loads has had another push acknowledged.
go_on() {
	local name
	for name; do await more_than "$(acknowledged "$name")" "$name" || fail "pushes to $name do not go on"; done
}
# acknowledged_is_there SITE NAME...: in the repository, and the same in the database.
acknowledged_is_there() {
	local name value
	for name in "${@:2}"; do
		value=$(value "$1" team/app "refs/heads/$name")
		# A push whose answer was lost may have been made.
		grep -q -x "$value" <(tail -n 1 "$work/acknowledged-$name") "$work/tried-$name" || { echo "$name: $value was not acknowledged last"; return 1; }
		[[ $value == $(global team/app "refs/heads/$name") ]] || { echo "$name: $value at $1, $(global team/app "refs/heads/$name") in the database"; return 1; }
	done
}
nothing_open_at() { [[ $(metric "$1" refdb_site_intents_pending) == 0 ]]; }
