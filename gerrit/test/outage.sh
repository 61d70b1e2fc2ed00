# Sourced: an outage, what users get meanwhile, and what there is afterwards.

source "$here/hold.sh"
seconds=${GERRIT_TEST_OUTAGE:-60} # how long one lasts
# pushes_again SITE: a change is pushed for review, on top of what is in the branch, and goes from the work tree: some versions of Gerrit
# refuse to review what builds on a commit of another branch.
pushes_again() {
	local taken=0
	in_tree "$1" team/app fetch -q && in_tree "$1" team/app reset -q --hard origin/master && commit "$1" team/app "after that $RANDOM" || return 1
	push "$1" team/app HEAD:refs/for/master || taken=1
	in_tree "$1" team/app reset -q --hard HEAD~1
	return $taken
}
# begin_outages: both sites take changes, and threads of eu's Gerrit can be held: it has loaded the classes in which they will be.
begin_outages() {
	stop_gerrit eu
	java_options=$debugged start_gerrit eu
	for site in eu us; do clone $site team/app; done
	check "eu takes changes" pushes_again eu
}

# recovered LOAD...: nobody has done anything about it. The loads are NAME-SITE.
recovered() {
	local name project where
	for where in eu us; do wait_for "nothing is open at $where" nothing_open_at $where; done
	for project in team/app All-Projects All-Users; do wait_for "$project is the same at both sites" quietly same_at_both $project; done
	for name; do check "nothing that was acknowledged to $name is lost ($(acknowledged "$name") pushes)" acknowledged_is_there "${name#*-}" "$name"; done
	check "no lock file is left" no_lock_files
	wait_for "no alarm is left" no_alarm
}
quietly() { "$@" >/dev/null; }
no_lock_files() { [[ -z $(find "$(root eu)" "$(root us)" -name '*.lock') ]] || { find "$(root eu)" "$(root us)" -name '*.lock'; return 1; }; }
no_alarm() {
	local where
	for where in eu us; do site $where status >"$work/$where/status" 2>&1 || return 1; done
}
# took COMMAND...: the command succeeds. It prints how long that took, which depends on the machine.
took() {
	local began=$EPOCHREALTIME
	"$@" || return 1
	echo "   ($(((${EPOCHREALTIME/./} - ${began/./}) / 1000)) ms)"
}
reads_at() { rest "$1" GET "changes/?q=project:team/app&n=5" >/dev/null && status_is 200; }
new_change_at() { rest "$1" POST changes/ "{\"project\":\"team/app\",\"branch\":\"master\",\"subject\":\"$2\"}" >/dev/null; }
