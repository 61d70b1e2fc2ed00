title "10. Many clients at both sites"
# call FILE SITE METHOD PATH [JSON]: rest, for clients that run side by side. FILE gets the status and, on the lines after it, the body.
call() {
	local data=()
	[[ -z ${5-} ]] || data=(-H 'Content-Type: application/json' -d "$5")
	curl -s -u admin:secret -X "$3" "${data[@]}" "$(url "$2")/a/$4" -o "$1.body" -w '%{http_code}\n' >"$1" || true
	sed "1{/^)]}'$/d}" "$1.body" >>"$1"
}
answered() { [[ " ${*:2} " == *" $(head -1 "$1") "* ]] || { cat "$1"; return 1; }; }
# A round: the same change gets a vote at both sites at once, and is then submitted at both at once. It is merged once. The other user
# reads that it is merged: with 409, or with 200 if Gerrit has tried again meanwhile.
submitted_once() {
	local new=$work/round-change id both=()
	call "$new" eu POST changes/ "{\"project\":\"team/app\",\"branch\":\"master\",\"subject\":\"round $1\"}"
	answered "$new" 201 || return 1
	id=team%2Fapp~$(sed 1d "$new" | jq -r ._number)
	await known_at us "$id" || return 1
	for site in eu us; do call "$work/vote-$site" "$site" POST "changes/$id/revisions/current/review" '{"labels":{"Code-Review":2}}' & both+=($!); done
	wait "${both[@]}"
	both=()
	grep -qx 200 <(head -qn 1 "$work/vote-eu" "$work/vote-us") || { cat "$work"/vote-*; return 1; }
	for site in eu us; do answered "$work/vote-$site" 200 409 503 && await approved "$site" "$id" || return 1; done
	for site in eu us; do call "$work/submit-$site" "$site" POST "changes/$id/submit" '{}' & both+=($!); done
	wait "${both[@]}"
	for site in eu us; do answered "$work/submit-$site" 200 409 503 || return 1; done
	local both_read="$(head -1 "$work/submit-eu") $(head -1 "$work/submit-us")"
	[[ $both_read == *200* ]] || { cat "$work"/submit-*; return 1; }
	answers[$both_read]=$((${answers[$both_read]-0} + 1))
	for site in eu us; do await merged_at "$site" "$id" || return 1; done
	[[ $(repo eu team/app log --format=%s refs/heads/master | grep -cx "round $1") == 1 ]]
}
known_at() { call "$work/known" "$1" GET "changes/$2"; [[ $(head -1 "$work/known") == 200 ]]; }
approved() { call "$work/known" "$1" GET "changes/$2?o=LABELS"; [[ $(sed 1d "$work/known" | jq -r '.labels["Code-Review"].approved._account_id') == 1000000 ]]; }
merged_at() { call "$work/known" "$1" GET "changes/$2"; [[ $(sed 1d "$work/known" | jq -r .status) == MERGED ]]; }
declare -A answers
rounds=${GERRIT_TEST_ROUNDS:-8}
for ((n = 1; n <= rounds; n++)); do check "a change is voted on and submitted at both sites at once, round $n: submitted once" submitted_once $n; done
for both_read in "${!answers[@]}"; do echo "   answers at eu and us: $both_read, ${answers[$both_read]} times"; done

# A client does what users do, and pushes to a branch that all clients push to: once at least, however slow the machine is. ask WHAT METHOD PATH [JSON]: one request, whose answer is counted.
ask() { call "$out" "$at" "${@:2}"; echo "$1 $(head -1 "$out")" >>"$work/clients/$name.answers"; [[ $(head -1 "$out") == 20? ]]; }
client() {
	local at=$1 name=$1-$2 until=$3 n=0 number change
	local tree=$work/clients/$name out=$work/clients/$name.call
	git clone -q "http://admin:secret@$(url "$at" | cut -d/ -f3)/a/team/app" "$tree" || return 1
	until [[ $SECONDS -ge $until && -s $work/clients/$name.numbers && -s $work/clients/$name.accepted || $SECONDS -ge $((until + patience)) ]]; do
		n=$((n + 1))
		if ask create POST changes/ "{\"project\":\"team/app\",\"branch\":\"master\",\"subject\":\"$name $n\"}"; then
			number=$(sed 1d "$out" | jq -r ._number)
			echo "$number" >>"$work/clients/$name.numbers"
			works_on "team%2Fapp~$number" || true
		fi
		git -C "$tree" fetch -q && git -C "$tree" reset -q --hard "$(git -C "$tree" rev-parse -q --verify origin/shared || echo origin/master)"
		git -C "$tree" commit -q --allow-empty -m "$name $n"
		! git -C "$tree" push -q origin HEAD:refs/heads/shared >>"$work/clients/$name.push" 2>&1 || git -C "$tree" rev-parse HEAD >>"$work/clients/$name.accepted"
	done
}
# works_on CHANGE: the change gets a vote, and some of the rest, by turns.
works_on() {
	local change=$1
	ask vote POST "changes/$change/revisions/current/review" '{"labels":{"Code-Review":2},"message":"fine"}'
	[[ $((n % 2)) != 0 ]] || ask draft PUT "changes/$change/revisions/current/drafts" '{"path":"/PATCHSET_LEVEL","message":"a draft"}'
	[[ $((n % 3)) != 0 ]] || ask star PUT "accounts/self/starred.changes/$change"
	[[ $((n % 5)) != 0 ]] || { ask edit PUT "changes/$change/edit/file-$name" "{\"binary_content\":\"data:text/plain;base64,$(base64 <<<"$n")\"}" && ask "publish an edit" POST "changes/$change/edit:publish" '{}'; }
	[[ $((n % 7)) != 0 ]] || ask tag PUT "projects/team%2Fapp/tags/$name-$n" '{"revision":"master"}'
	[[ $((n % 7)) != 1 ]] || ask account PUT "accounts/$name-$n" "{\"name\":\"$name $n\"}"
	[[ $((n % 7)) != 2 ]] || ask group PUT "groups/$name-$n" '{}'
	[[ $((n % 7)) != 3 ]] || ask permissions POST projects/team%2Fapp/access "{\"add\":{\"refs/heads/$name-$n\":{\"permissions\":{\"push\":{\"rules\":{\"$administrators\":{\"action\":\"ALLOW\"}}}}}}}"
	case $((n % 4)) in
	0) ask abandon POST "changes/$change/abandon" '{}' && [[ $((n % 8)) == 0 ]] && ask restore POST "changes/$change/restore" '{}' ;;
	1) ask topic PUT "changes/$change/topic" "{\"topic\":\"$name\"}" ;;
	2) ask submit POST "changes/$change/submit" '{}' ;;
	esac
}
mkdir -p "$work/clients"
seconds=${GERRIT_TEST_SECONDS:-60}
clients=()
for n in 1 2 3; do for site in eu us; do client $site $n $((SECONDS + seconds)) & clients+=($!); done; done
check "$seconds s of 6 clients at both sites" wait "${clients[@]}"
echo "   answers:"
sort "$work"/clients/*.answers | uniq -c | awk '{status = $NF; n = $1; $1 = $NF = ""; what[$0] = what[$0] "  " status ": " n} END {for (w in what) printf "   %-18s%s\n", w, what[w]}' | sort
check "none was an internal error" not grep -h ' 500$' "$work"/clients/*.answers
distinct() { [[ -z $(sort "$work"/clients/*.numbers | uniq -d) ]] || { sort "$work"/clients/*.numbers | uniq -d; return 1; }; }
check "$(cat "$work"/clients/*.numbers | wc -l) changes were made, no two with one number" distinct
for site in eu us; do check "some were made at $site" [ -s "$work/clients/$site-1.numbers" ]; done
for site in eu us; do check "some pushes to one branch were accepted at $site" [ -s "$work/clients/$site-1.accepted" ]; done
for project in team/app All-Projects All-Users; do wait_for "$project is the same at both sites" same_at_both "$project"; done
all_accepted() {
	local commit
	for commit in $(cat "$work"/clients/*.accepted); do
		for site in eu us; do repo $site team/app merge-base --is-ancestor "$commit" refs/heads/shared || { echo "$commit is lost at $site"; return 1; }; done
	done
}
check "$(cat "$work"/clients/*.accepted | wc -l) pushes to one branch were accepted ($(cat "$work"/clients/eu-*.accepted | wc -l) at eu), and none was lost" all_accepted
for site in eu us; do wait_for "nothing is open at $site" nothing_open_at $site; done
all_refs() { repo "$1" team/app for-each-ref --format='%(refname)' 'refs/changes/*/*/meta' | sed 's/.*\/\([0-9]*\)\/meta/\1/' | sort -n; }
check "each number is a change at both sites" eval 'diff <(sort -n "$work"/clients/*.numbers) <(comm -12 <(sort "$work"/clients/*.numbers) <(comm -12 <(all_refs eu | sort) <(all_refs us | sort)) | sort -n)'
for site in eu us; do check "gerrit check has no findings at $site" check_gerrit; done
