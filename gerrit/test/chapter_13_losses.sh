title "13. The database, a disk or a site is gone"
source "$here/outage.sh"
begin_outages

refused_at() { # SITE: a push, which could be made otherwise
	commit "$1" team/app "refused at $1 $RANDOM"
	took not push "$1" team/app HEAD:refs/heads/refused || return 1
	in_tree "$1" team/app reset -q --hard HEAD~1
}
if [[ $own_server == postgres ]]; then
	loads eu g-eu
	loads us g-us
	go_on g-eu g-us
	check "the database is killed" database kill
	for site in eu us; do
		check "a push at $site is refused" refused_at $site
		check "its user reads why" reads 'remote: refdb: .*database'
		check "also the next time" refused_at $site
		check "$site can be read" reads_at $site
	done
	sleep "$seconds"
	check "the database is started again" database start
	loads_end
	for site in eu us; do wait_for "$site takes changes again" pushes_again $site; done
	recovered g-eu g-us
else
	echo "left out: a database that is killed, which needs REFDB_URL=postgres"
fi

# The repositories of eu come to a disk of their own, which is small, and writes nothing by itself for a long time.
disk=$work/disk
on_their_own_disk() {
	local git
	git=$(root eu)
	stop_gerrit eu
	kill_daemon eu TERM
	mv "$git" "$git.before" && mkdir "$git" "$work/crashed"
	truncate --size=$(($(du -sk "$git.before" | cut -f1) + 98304))k "$disk"
	mkfs.ext4 -q -F -m 0 "$disk" && mount -o loop,commit=300 "$disk" "$git" || return 1
	cp -a "$git.before/." "$git/" && sync -f "$git"
}
fills_up() { # by large files first, then by the smallest
	local fill n=0
	fill=$(root eu)/filler
	mkdir "$fill"
	! cat /dev/zero 2>/dev/null >"$fill/large" || return 1
	sync -f "$fill"
	while echo x 2>/dev/null >"$fill/$n" && sync -f "$fill"; do
		n=$((n + 1))
		[[ $n -lt 2000 ]] || return 1
	done
}
refs_of() { git --git-dir="$1" for-each-ref | grep -v refs/cache-automerge/ || true; }
# A machine that crashes now would find its disk like that.
crashes() { cp "$disk" "$disk.crashed" && mount -o loop "$disk.crashed" "$work/crashed"; }
found_again() {
	local dir at
	for dir in $(cd "$(root eu)" && find . -name '*.git' -prune); do
		at=$work/crashed/$dir
		diff <(refs_of "$at") <(refs_of "$(root eu)/$dir") || return 1
		git --git-dir="$at" rev-list --quiet --objects --all || return 1
	done
}
goes_on_with_it() {
	stop_gerrit eu KILL
	kill_daemon eu
	umount "$work/crashed" && umount "$(root eu)" && mount -o loop "$disk.crashed" "$(root eu)"
}
a_draft() { rest eu PUT "changes/$1/revisions/current/drafts" '{"path":"/COMMIT_MSG","line":1,"message":"not yet"}' >/dev/null && status_is 201; }
if [[ $EUID == 0 && -e /dev/loop-control ]]; then
	check "the repositories of eu come to a small disk" on_their_own_disk
	start_daemon eu
	java_options=$debugged start_gerrit eu
	loads eu h-eu
	loads us h-us
	go_on h-eu h-us
	check "it is full" fills_up
	check "a push there is refused" refused_at eu
	check "eu can be read" reads_at eu
	before=$(acknowledged h-us)
	wait_for "us went on" more_than $((before + 5)) h-us
	check "it has room again" rm -r "$(root eu)/filler"
	loads_end
	wait_for "eu takes changes again" pushes_again eu
	recovered h-eu h-us

	check "a project is made" new_project eu "made/before-the-crash"
	in_tree eu team/app fetch -q
	in_tree eu team/app reset -q --hard origin/master
	commit eu team/app "before the crash"
	check "a change" for_review eu team/app
	change=$(rest eu GET "changes/?q=subject:%22before+the+crash%22" | jq -r '.[0].id')
	check "a draft" a_draft "$change"
	check "a vote" vote eu "$change"
	check "it is submitted" submit eu "$change"
	check "a branch is made" push eu team/app HEAD:refs/heads/g/h
	check "and one deleted" push eu team/app :refs/heads/h-eu
	check "the machine of eu crashes" crashes
	check "what was acknowledged is on its disk" found_again
	check "it goes on with that" goes_on_with_it
	start_daemon eu
	java_options=$debugged start_gerrit eu
	wait_for "eu takes changes again" pushes_again eu
	recovered h-us
else
	echo "left out: a full disk, and a crash of the machine, as this user can't mount a file"
fi

# eu dies while it takes numbers for changes.
stop_gerrit eu
java_options=$debugged start_gerrit eu # it will need numbers for its next change
another_account() { rest "$1" PUT "accounts/$2" '{"http_password":"secret"}' >/dev/null && status_is 201; }
check "eu moves refs one by one" another_account eu bob # and loads the class
check "the next thread that moves a single ref will be held" hold $before_the_ref
numbers=refs/sequences/changes
before=$(global All-Projects $numbers)
new_change_at eu "never made" &
wait_for "a thread of eu is held" is_held
is_locked() { command refdbctl locks list | grep -q "$numbers"; }
check "while it takes numbers for changes" is_locked
kill_daemon eu # before Gerrit, or it would settle what that leaves
stop_gerrit eu KILL
lock_file=$(root eu)/All-Projects.git/$numbers.lock
check "a lock file of its Gerrit is left" test -e "$lock_file"
no_numbers_at() { # until those that it has are used
	local n
	for ((n = 0; n < 60; n++)); do
		new_change_at "$1" "number $n"
		status_is 201 >/dev/null || return 0
	done
	return 1
}
sleep 35 # until the lock is stale
check "the machine of eu is gone: us has no more numbers" no_numbers_at us
check "a change there is refused" took new_change_at us refused
check "its user reads why" body_has 'refs/sequences/changes: another push to it is in progress at eu'
check "us can be read" reads_at us
push_a_branch() { commit us team/app "branch $RANDOM" && push us team/app "HEAD:refs/heads/$1"; }
check "and takes pushes of branches" push_a_branch beside
check "eu is retired" command refdbctl sites retire eu --reason "its machine is gone" --yes
changes_at() { new_change_at "$1" "after that" && status_is 201 >/dev/null; }
wait_for "us makes changes again" changes_at us
check "no lock is left" not is_locked

# The machine is found.
start_and_wait() {
	command refdbctl site serve --config "$work/eu/refdb.config" >"$work/eu/retired.log" 2>&1 || grep -q "the site was retired" "$work/eu/retired.log"
}
check "its daemon ends at once: the site was retired" start_and_wait
check "it is to be a site again" site eu take-over --yes
start_daemon eu
java_options= start_gerrit eu
wait_for "that lock file is removed" not test -e "$lock_file"
wait_for "eu takes changes again" pushes_again eu
recovered
numbers_are_distinct() {
	local twice
	twice=$(rest us GET "changes/?q=project:team/app" | jq -r '.[]._number' | sort | uniq -d)
	[[ -z $twice ]] || { echo "$twice"; return 1; }
}
check "no two changes have one number" numbers_are_distinct
for site in eu us; do check "gerrit check has no findings at $site" check_gerrit; done
