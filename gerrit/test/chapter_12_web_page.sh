title "12. The web page of a change at the other site"
chromium=$(command -v chromium chromium-browser google-chrome | head -1 || true)
# shows SITE PATH TEXT...: the page has these texts.
shows() {
	local directory
	directory=$(mktemp -d -p "$work")
	"$java" "$here/Page.java" "$chromium" "$directory" $patience "$(url "$1")/$2" "${@:3}" || return 1
	rm -rf "$directory"
}
if [[ -z $chromium ]]; then
	echo "   left out: no Chromium is installed (Debian: chromium)"
elif [[ $version != 3.9.* ]]; then
	echo "   left out: this Gerrit $version has no web UI"
else
	stop_gerrit us
	with_web_ui=yes start_gerrit us
	shown=$(rest eu POST changes/ '{"project":"team/app","branch":"master","subject":"Shown in the browser"}' | jq -r ._number)
	check "a change is made at eu" [ -n "$shown" ]
	check "with a comment and a vote" eval 'rest eu POST "changes/$shown/revisions/current/review" "{\"message\":\"A comment from eu\",\"labels\":{\"Code-Review\":2}}" >/dev/null && status_is 200'
	wait_for "us has it" eval '[[ $(rest us GET "changes/?q=change:$shown+label:Code-Review=2" | jq length) == 1 ]]'
	check "its page at us has the subject, the comment and the vote" shows us "c/team/app/+/$shown" "Shown in the browser" "A comment from eu" "Code-Review +2"
	check "and the list of changes has it" shows us "q/change:$shown" "Shown in the browser"
	stop_gerrit us
	start_gerrit us
fi
