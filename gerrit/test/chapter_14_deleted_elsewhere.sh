title "14. A project is removed while both Gerrits have it open"
found_at() { [[ $(rest "$1" GET "changes/?q=$2" | jq length) -gt 0 ]]; }
answers() { rest "${@:2}" >/dev/null && status_is "$1" >/dev/null; }
check "a project is created at eu" new_project eu team/doomed
wait_for "us has it" answers 200 us GET projects/team%2Fdoomed
doomed=$(rest us POST changes/ '{"project":"team/doomed","branch":"master","subject":"in a doomed project"}' | jq -r ._number)
for site in eu us; do wait_for "its change is found at $site" found_at $site "change:$doomed"; done
for site in eu us; do check "and its branches are read there" answers 200 $site GET projects/team%2Fdoomed/branches/; done
mkdir -p "$work/eu/gerrit/removed" "$work/us/gerrit/removed"
check "the project is removed" refdbctl project remove team/doomed --yes
for site in eu us; do
	wait_for "the daemon of $site moves its repository aside" [ ! -e "$(root $site)/team/doomed.git" ]
	wait_for "Gerrit of $site has no such project" answers 404 $site GET projects/team%2Fdoomed
	check "nor its branches" answers 404 $site GET projects/team%2Fdoomed/branches/
	wait_for "nor is it listed" eval 'rest $site GET projects/ | jq -e "has(\"team/doomed\") | not" >/dev/null'
	wait_for "nor in the index" eval '[[ $(rest $site GET "projects/?query=name:team/doomed" | jq length) == 0 ]]'
	wait_for "nor is its change found" not found_at $site "change:$doomed"
	check "which is not there" answers 404 $site GET "changes/$doomed"
done
wait_for "it can be created anew at us" new_project us team/doomed
wait_for "and eu has it, too" answers 200 eu GET projects/team%2Fdoomed
for site in eu us; do check "nothing failed at $site" not grep "can.t follow .*team/doomed" "$work/$site/gerrit.log"; done
