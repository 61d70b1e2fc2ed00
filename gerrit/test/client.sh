# Sourced: what users do.

# rest SITE METHOD PATH [JSON]: prints the body; the status is in $work/status. $as is who asks, an administrator if it is not set.
rest() {
	local data=()
	[[ -z ${4-} ]] || data=(-H 'Content-Type: application/json' -d "$4")
	curl -s -u "${as:-admin:secret}" -X "$2" "${data[@]}" "$(url "$1")/a/$3" -o "$work/body" -w '%{http_code}' >"$work/status"
	sed "1{/^)]}'$/d}" "$work/body"
}
status_is() { [[ $(<"$work/status") == "$1" ]] || { cat "$work/status" "$work/body"; return 1; }; }

# clone SITE PROJECT: a work tree in $work/client/PROJECT-SITE.
work_tree() { echo "$work/client/${2//\//-}-$1"; }
clone() {
	rm -rf "$(work_tree "$1" "$2")"
	git clone -q "http://admin:secret@${3:-$(url "$1" | cut -d/ -f3)}/a/$2" "$(work_tree "$1" "$2")"
}
in_tree() { git -C "$(work_tree "$1" "$2")" "${@:3}"; }
# commit SITE PROJECT TEXT: with a change ID that no other commit has.
commit() {
	echo "$3" >"$(work_tree "$1" "$2")/file-${3// /-}"
	in_tree "$1" "$2" add .
	in_tree "$1" "$2" commit -q -m "$3" -m "Change-Id: I$(echo "$3 $RANDOM $RANDOM" | sha1sum | cut -c1-40)"
}
# push SITE PROJECT REFSPEC...: what the user reads is in $work/push.
push() { in_tree "$1" "$2" push origin "${@:3}" >"$work/push" 2>&1; }
reads() { grep -q -e "$1" "$work/push" || { cat "$work/push"; return 1; }; }
body_has() { grep -q -e "$1" "$work/body" || { cat "$work/body"; return 1; }; }
not() { ! "$@"; }

# value SITE PROJECT REF: in the site's repository. global PROJECT REF: in the database.
value() { repo "$1" "$2" rev-parse -q --verify "$3" || true; }
global() { refdbctl refs get "$1" "$2" 2>/dev/null | grep -E '^[0-9a-f]{40}' || true; }
# same SITE PROJECT: the database has what the repository has, for all refs that it guards.
same() {
	[[ -n $(repo "$1" "$2" for-each-ref --count=1) ]] || return 1
	diff <(refdbctl refs list "$2" | awk 'NR > 1 && $1 !~ /^0+$/ && $NF != "HEAD" {print $1, $2}' | sort) \
		<(repo "$1" "$2" for-each-ref --format='%(objectname) %(refname)' | grep -v -E ' refs/(cache-automerge|refdb)/' | sort)
}
# counted SITE N COMMAND...: the command makes N announcements.
counted() {
	local before
	before=$(announcements "$1")
	"${@:3}" || return 1
	local n=$(($(announcements "$1") - before))
	[[ $n == "$2" ]] || { echo "$n announcements, not $2"; return 1; }
}
