title "14. A project is removed while both Gerrits have it open"
answers() { rest "${@:2}" >/dev/null && status_is "$1" >/dev/null; }
# finds SITE N PATH: a query that is answered, with N results.
finds() { [[ $(rest "$1" GET "$3" | jq length) == "$2" ]] && status_is 200 >/dev/null; }
lists() { rest "$1" GET projects/ | jq -e --arg p "$2" 'has($p)' >/dev/null && status_is 200 >/dev/null; }
lists_not() { rest "$1" GET projects/ | jq -e --arg p "$2" 'has("All-Projects") and (has($p) | not)' >/dev/null && status_is 200 >/dev/null; }
check "a project is created at eu" new_project eu team/doomed
wait_for "us has it" answers 200 us GET projects/team%2Fdoomed
doomed=$(rest us POST changes/ '{"project":"team/doomed","branch":"master","subject":"in a doomed project"}' | jq -r ._number)
for site in eu us; do
	wait_for "its change is found at $site" finds $site 1 "changes/?q=change:$doomed"
	wait_for "it is in the index of $site" finds $site 1 "projects/?query=name:team/doomed"
	check "and on its list" lists $site team/doomed
	check "and its branches are read there" answers 200 $site GET projects/team%2Fdoomed/branches/
done

# What can't be read for a while is not forgotten.
still_there() {
	wait_for "$1: its branches are read" answers 200 us GET projects/team%2Fdoomed/branches/
	check "its change is found" finds us 1 "changes/?q=change:$doomed"
	check "it is in the index" finds us 1 "projects/?query=name:team/doomed"
	check "and on the list" lists us team/doomed
}
fails() { ! answers 200 "$@" && ! status_is 404 >/dev/null; }
mv "$(root us)" "$work/us/away"
check "the disk of us is not mounted: a request fails" fails us GET projects/team%2Fdoomed/branches/
mv "$work/us/away" "$(root us)"
still_there "the disk is back"
comparisons() { grep -c 'refdb: everything was compared' "$work/us/gerrit.log" || true; }
before=$(comparisons)
head=$(<"$(root us)/team/doomed.git/HEAD")
: >"$(root us)/team/doomed.git/HEAD"
: >"$work/us/gerrit/data/refdb/compare"
# Gerrit may still have it open; if not, the comparison goes on until it can be opened.
compares_it() { [[ $(comparisons) -gt $before ]] || grep -q "can.t follow .*team/doomed" "$work/us/gerrit.log"; }
wait_for "its HEAD is empty while us compares everything" compares_it
wait_for "the guard says that Gerrit knows a project without a repository" grep -qsx team/doomed "$work/us/gerrit/data/refdb/without-repository"
echo "$head" >"$(root us)/team/doomed.git/HEAD"
still_there "its HEAD is back"
wait_for "and everything is compared" eval '[[ $(comparisons) -gt $before ]]'
site=us
wait_for "gerrit check has no findings" check_gerrit
failures() { grep -c "can.t follow .*team/doomed" "$work/$1/gerrit.log" || true; }
failed=$(failures us)

mkdir -p "$work/eu/gerrit/removed" "$work/us/gerrit/removed"
check "the project is removed" refdbctl project remove team/doomed --yes
for site in eu us; do
	wait_for "the daemon of $site moves its repository aside" [ ! -e "$(root $site)/team/doomed.git" ]
	wait_for "Gerrit of $site has no such project" answers 404 $site GET projects/team%2Fdoomed
	check "nor its branches" answers 404 $site GET projects/team%2Fdoomed/branches/
	wait_for "nor is it listed" lists_not $site team/doomed
	wait_for "nor in the index" finds $site 0 "projects/?query=name:team/doomed"
	wait_for "nor is its change found" finds $site 0 "changes/?q=change:$doomed"
	check "which is not there" answers 404 $site GET "changes/$doomed"
done
wait_for "it can be created anew at us" new_project us team/doomed
wait_for "and eu has it, too" answers 200 eu GET projects/team%2Fdoomed
check "nothing failed at eu" [ "$(failures eu)" == 0 ]
check "nor, from then on, at us" [ "$(failures us)" == "$failed" ]
