title "2. What users do, and the transactions that it takes"
new_project() { rest "$1" PUT "projects/$(jq -rn --arg n "$2" '$n|@uri')" '{"create_empty_commit":true}' >/dev/null && status_is 201; }
check "a new project: refs/meta/config and the first branch, in 2 transactions" counted eu 2 new_project eu team/app
check "the database has them" same eu team/app
check "the history says who" eval "refdbctl refs log team/app | grep -q 'Administrator <admin@example.com>'"
clone eu team/app
administrators=$(rest eu GET groups/Administrators | jq -r .id)
# Gerrit goes by the first rule of a group: the one without force goes.
may_push() { rest eu POST projects/All-Projects/access "{\"remove\":{\"refs/heads/*\":{\"permissions\":{\"push\":{\"rules\":{}}}}},\"add\":{\"refs/heads/*\":{\"permissions\":{\"push\":{\"rules\":{\"$administrators\":{\"action\":\"ALLOW\",\"force\":true}}}}}}}" >/dev/null && status_is 200; }
check "permissions of all projects: one transaction" counted eu 1 may_push

for_review() { push "$1" "$2" HEAD:refs/for/master; }
commit eu team/app one
check "a push for review: one for the change, one for a block of numbers" counted eu 2 for_review eu team/app
commit eu team/app two
check "the next one: one transaction" counted eu 1 for_review eu team/app
change=$(rest eu GET "changes/?q=subject:one" | jq -r '.[0].id')
two=$(rest eu GET "changes/?q=subject:two" | jq -r '.[0].id')
vote() { rest "$1" POST "changes/$2/revisions/current/review" '{"labels":{"Code-Review":2}}' >/dev/null && status_is 200; }
submit() { rest "$1" POST "changes/$2/submit" '{}' >/dev/null && status_is 200; }
check "a vote: one transaction" counted eu 1 vote eu "$change"
check "it can be submitted" submit eu "$change"
check "and the branch has it, here and in the database" eval '[[ $(value eu team/app refs/heads/master) == $(in_tree eu team/app rev-parse HEAD~1) && $(global team/app refs/heads/master) == $(in_tree eu team/app rev-parse HEAD~1) ]]'
vote eu "$two"

for n in 1 2 3 4 5 6 7 8; do commit eu team/app "chain $n"; done
check "8 more changes on top, in one push: one transaction" counted eu 1 for_review eu team/app
for id in $(rest eu GET "changes/?q=status:open+subject:chain" | jq -r '.[].id'); do vote eu "$id"; done
last=$(rest eu GET "changes/?q=subject:%22chain+8%22" | jq -r '.[0].id')
check "9 changes are submitted together: one transaction, the branch with all changes" counted eu 1 submit eu "$last"
check "the database has what the repository has" same eu team/app

direct() { push "$1" "$2" HEAD:refs/heads/a HEAD:refs/heads/b HEAD:refs/tags/v1; }
check "a push of 3 refs: one transaction" counted eu 1 direct eu team/app
delete_branch() { rest eu DELETE projects/team%2Fapp/branches/a && status_is 204; }
check "a branch is deleted: one transaction" counted eu 1 delete_branch
check "the database knows that it is" eval '[[ -z $(global team/app refs/heads/a) && -z $(value eu team/app refs/heads/a) ]]'
head_moves() { rest eu PUT projects/team%2Fapp/HEAD '{"ref":"refs/heads/b"}' >/dev/null && status_is 200; }
check "HEAD can point elsewhere" head_moves
star() { rest eu PUT "accounts/self/starred.changes/$two" && status_is 204; }
check "a star: one transaction" counted eu 1 star
new_account() { rest eu PUT accounts/ann '{"name":"Ann","email":"ann@example.com","http_password":"secret"}' >/dev/null && status_is 201; }
check "a new account" new_account
check "garbage collection does nothing" eval 'rest eu POST projects/team%2Fapp/gc "{}" >/dev/null; body_has "garbage collection for project .* failed"'
for project in All-Projects All-Users team/app; do check "$project is in the database as it is in the repository" same eu $project; done
check "nothing was refused" eval '[[ $(metric eu "refdb_site_refs_total{result=\"refused\"}") == 0 ]]'
wait_for "nothing is open" nothing_open_at eu
