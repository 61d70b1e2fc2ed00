# A new site joins a project of many changes. In place of chapter 6, which makes that site: run.sh BIN 1 2 join.
title "A site joins a project of many changes"
changes=${GERRIT_TEST_CHANGES:-10000}

# The changes are made in a repository of their own, after the first one of chapter 2, and pushed to eu with plain git.
make_changes() {
	local many=$work/many.git first master meta
	first=$(repo eu team/app for-each-ref --format='%(refname)' 'refs/changes/*/*/meta' | head -1)
	git clone -q --bare "$(root eu)/team/app.git" "$many" && git -C "$many" fetch -q "$(root eu)/team/app.git" "$first:refs/first" || return 1
	master=$(git -C "$many" rev-parse refs/heads/master)
	meta=$(git -C "$many" rev-list --max-parents=0 refs/first)
	awk -v n="$changes" -v master="$master" 'BEGIN {
		for (i = 1; i <= n; i++) {
			printf "commit refs/made\nmark :%d\ncommitter admin <admin@example.com> 1700000000 +0000\ndata <<END\n", i
			printf "many %d\n\nChange-Id: I%040d\nEND\nfrom %s\nM 100644 inline many-%d\ndata <<END\n%d\nEND\n", i, i, master, i, i
		}}' | git -C "$many" fast-import --quiet --export-marks="$work/patch-sets" || return 1
	git -C "$many" cat-file commit "$meta" >"$work/meta"
	awk -v meta="$work/meta" '
		BEGIN { while ((getline line <meta) > 0) if (line !~ /^(tree|parent) /) text[++lines] = line }
		{
			i = substr($1, 2)
			print "reset refs/meta\ncommit refs/meta\nmark :" i
			for (l = 1; l <= lines; l++) {
				line = text[l]
				if (line == "" && !body[i]++) line = "data <<END"
				sub(/^Change-id: .*/, sprintf("Change-id: I%040d", i), line)
				sub(/^Subject: .*/, "Subject: many " i, line)
				sub(/^Commit: .*/, "Commit: " $2, line)
				sub(/^Groups: .*/, "Groups: " $2, line)
				print line
			}
			print "END\ndeleteall"
		}' "$work/patch-sets" | git -C "$many" fast-import --quiet --export-marks="$work/metas" || return 1
	join <(sort "$work/patch-sets") <(sort "$work/metas") | awk '{
		i = substr($1, 2) + 1000
		name = sprintf("refs/changes/%02d/%d", i % 100, i)
		print "create " name "/1 " $2 "\ncreate " name "/meta " $3
	}' | git -C "$many" update-ref --stdin
}
push_changes() {
	local from n refs
	for from in 0 10 20 30 40 50 60 70 80 90; do
		refs=()
		for n in 0 1 2 3 4 5 6 7 8 9; do refs+=("refs/changes/$(printf %02d $((from + n)))/*:refs/changes/$(printf %02d $((from + n)))/*"); done
		git -C "$work/many.git" push -q --atomic "$(root eu)/team/app.git" "${refs[@]}" || return 1
	done
}
# Gerrit is to go on with numbers that are free.
move_sequence() {
	local blob
	blob=$(printf %d $((changes + 2000)) | git --git-dir="$(root eu)/All-Projects.git" hash-object -w --stdin)
	git --git-dir="$(root eu)/All-Projects.git" update-ref refs/sequences/changes "$blob"
}
# How much memory each process of us had at most, in KB.
watch_memory() {
	local pid what
	while sleep 0.3; do
		for pid in $(pgrep -f "$work/us"); do
			case $(tr '\0' ' ' <"/proc/$pid/cmdline") in
			*java*" init "*) what=init ;;
			*"site serve"*) what=daemon ;;
			*"refdbctl gerrit join"*) what=join ;;
			*"git "*) what=git ;;
			*) continue ;;
			esac
			awk -v what=$what '/^VmHWM/ {print what, $2}' "/proc/$pid/status"
		done
	done 2>/dev/null >"$work/memory"
}
peak() { awk -v what="$1" '$1 == what && $2 > most {most = $2} END {print int(most / 1024)}' "$work/memory"; }
at_most() { echo "   ($1 MB)"; [[ $1 -gt 0 && $1 -le $2 ]]; }

stop_gerrit eu
began=$SECONDS
check "$changes changes are made" make_changes
check "and pushed to eu" push_changes
check "and the numbers go on behind them" move_sequence
echo "   that took $((SECONDS - began)) s"

watch_memory &
processes+=($!)
join_gerrit() { JAVA_TOOL_OPTIONS=-Xmx700m script -qec "$(printf '%q ' refdbctl "$@")" /dev/null </dev/null; }
follow_page us 1 3
began=$SECONDS
follow_page us 4 4
took=$((SECONDS - began))
check "us has joined, with $changes changes, in $took s" same us team/app
check "a progress bar was shown" grep -q 'projects .*%' "$work/join"
check "refdbctl gerrit join needs little memory" at_most "$(peak join)" 400
check "so does the daemon" at_most "$(peak daemon)" 400
check "and git" at_most "$(peak git)" 400
echo "   init of Gerrit, with -Xmx700m: $(peak init) MB"
configure_gerrit us
began=$SECONDS
follow_page us 5 5
found_at_us() { [[ $(rest us GET "changes/?q=change:$1+status:open" | jq length) == 1 ]]; }
check "its Gerrit has the first of the changes" found_at_us 1001
check "and the last" found_at_us $((changes + 1000))
compared_at_us() { grep -q 'refdb: everything was compared' "$work/us/gerrit.log"; }
wait_for "it has compared everything with the database's refs" compared_at_us
grep -o 'refdb: everything was compared.*' "$work/us/gerrit.log"
site=us
check "gerrit check has no findings" check_gerrit
