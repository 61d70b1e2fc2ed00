# Sourced: a site, with its daemon and its Gerrit. SITE is its name, eu or us.

processes=()
checks=0
patience=600 # seconds; only what hangs takes as long, however slow the machine is
declare -A daemon gerrit

title() { printf '\n== %s\n' "$*"; }
fail() {
	printf '   FAILED: %s\n' "$*" >&2
	tail -n 15 "$work/push" "$work"/*/refdb.log >&2 || true # what the last push said is in push
	grep -h -v -E 'INFO|^WARNING|AssistedInject' "$work"/*/gerrit.log | tail -n 40 >&2 || true
	tail -n 30 "$work"/*/gerrit/logs/error_log "$work/database.log" >&2 || true
	printf 'load: %s\n' "$(</proc/loadavg)" >&2
	exit 1
}
# check WHAT COMMAND...: a promise, and the command that looks whether it is kept.
check() {
	"${@:2}" || fail "$1"
	checks=$((checks + 1))
	printf '   %s\n' "$1"
}
# wait_for WHAT COMMAND...: the same, after a while.
wait_for() {
	await "${@:2}" || fail "$1"
	checks=$((checks + 1))
	printf '   %s\n' "$1"
}
# await COMMAND...: until it succeeds.
await() {
	local deadline=$((SECONDS + patience))
	until "$@"; do
		[[ $SECONDS -lt $deadline ]] || return 1
		sleep 0.1
	done
}

url() { local port=GERRIT_PORT_$1; echo "http://127.0.0.1:${!port}"; }
root() { echo "$work/$1/gerrit/git"; }
# repo SITE PROJECT ARGUMENT...: git in the site's repository, past the guard.
repo() { git --git-dir="$(root "$1")/$2.git" -c core.hooksPath=/dev/null "${@:3}"; }
# site SITE SUBCOMMAND...: refdbctl site with the site's configuration.
site() { refdbctl site "$2" --config "$work/$1/refdb.config" "${@:3}"; }
# metric SITE NAME
metric() { curl -s --unix-socket "$work/$1/metrics.sock" http://site/metrics | awk -v name="$2" '$1 == name {print $2}'; }
announcements() { metric "$1" refdb_site_announcement_duration_seconds_count; }

# The commands of docs/GERRIT.md are run as they are written, at $site, with other paths. follow_page SITE FROM TO: those of these numbers.
follow_page() {
	site=$1
	[[ -e $work/$site/refdb.config ]] || configure_daemon "$site"
	local n=0 line
	while read -r line <&3; do
		n=$((n + 1))
		[[ $n -lt $2 || $n -gt $3 ]] || check "$site: $line" eval "$(at_site <<<"$line")"
	done 3< <(documented sh "\*\*At $site:\*\*")
	[[ $n == 5 ]] || fail "the page has $n commands for $site"
}
at_site() { sed -e "s#eu:/srv/gerrit#$work/eu/gerrit#; s#/srv/gerrit#$work/$site/gerrit#g; s#/etc/refdb/database#$work/database#g; s#/etc/refdb/owner#$work/database#g; s#/var/lib/refdb/eu#$work/us/eu#g"; }
configure_daemon() {
	mkdir -p "$work/$1/state"
	echo "$REFDB_URL" >"$work/database"
	documented ini '^At both sites' | at_site >"$work/$1/refdb.config"
	git config -f "$work/$1/refdb.config" site.name "$1"
	git config -f "$work/$1/refdb.config" site.socket "$work/$1/refdb.sock"
	git config -f "$work/$1/refdb.config" site.state "$work/$1/state"
	git config -f "$work/$1/refdb.config" site.metrics "$work/$1/metrics.sock"
	# A slow machine is to refuse nothing.
	git config -f "$work/$1/refdb.config" site.timeout 2m
	git config -f "$work/$1/refdb.config" site.lockWait 10s
}
# documented LANGUAGE AFTER: the next block in that language after a line of docs/GERRIT.md that begins so, where it says how to install the guard.
documented() {
	awk -v language="$1" -v after="$2" '
		/^### / { section = $0 == "### Install it" }
		section && $0 ~ after { next_one = 1 }
		/^ *```/ { block = next_one && !block && $1 == "```" language; if (!block && printed) exit; next }
		block { printed = 1; sub(/^   /, ""); print }' "$here/../../docs/GERRIT.md"
}
# What the page's commands need of the machine.
sudo() { [[ $1 != -u ]] || shift 2; "$@"; }
install() { mkdir -p "${@:6}"; }
rsync() { mkdir -p "${@: -1}" && cp -a "${@:2}"; }
systemctl() {
	case "$*" in
	"enable --now refdb-site") start_daemon "$site" ;;
	"start gerrit") start_gerrit "$site" ;;
	"stop gerrit") stop_gerrit "$site" ;;
	*) return 1 ;;
	esac
}
refdbctl() {
	case "$1 ${2-}" in
	"gerrit join") join_gerrit "$@" --config "$work/$site/refdb.config" | tee "$work/join" ;;
	gerrit*) command refdbctl "$@" --config "$work/$site/refdb.config" ;;
	*) command refdbctl "$@" ;;
	esac
}

join_gerrit() { JAVA_TOOL_OPTIONS=-Xmx700m command refdbctl "$@"; }

start_daemon() {
	command refdbctl site serve --config "$work/$1/refdb.config" >>"$work/$1/refdb.log" 2>&1 &
	daemon[$1]=$!
	processes+=($!)
	wait_for "the daemon of $1 runs" serves "$1"
}
serves() { site "$1" status >"$work/$1/status" 2>/dev/null && grep -q '^serving *yes' "$work/$1/status"; }

# kill_daemon SITE [SIGNAL]
kill_daemon() {
	kill "-${2:-KILL}" "${daemon[$1]}"
	wait "${daemon[$1]}" 2>/dev/null || true
}

# Gerrit has no part in it that the guard needs: a server without a web UI, and no SSH.
gerrit_config() { git config -f "$work/$1/gerrit/etc/gerrit.config" "${@:2}"; }
configure_gerrit() {
	gerrit_config "$1" gerrit.canonicalWebUrl "$(url "$1")/"
	gerrit_config "$1" httpd.listenUrl "$(url "$1")/"
	gerrit_config "$1" sshd.listenAddress off
	gerrit_config "$1" receive.timeout "1 h"
}
init_gerrit() { "${gerrit_program[@]}" init --batch --dev --no-auto-start --skip-all-downloads -d "$work/$1/gerrit" >"$work/$1/init.log" 2>&1; }

# run_gerrit SITE: with $java_options, and with the web UI if $with_web_ui is set.
run_gerrit() {
	: >"$work/$1/gerrit.log" # before somebody looks whether it says "ready"
	local ui=--headless
	[[ -z ${with_web_ui-} ]] || ui=
	"$java" ${java_options-} "${gerrit_program[@]:1}" daemon $ui --console-log -d "$work/$1/gerrit" >>"$work/$1/gerrit.log" 2>&1 &
	gerrit[$1]=$!
	processes+=($!)
}
start_gerrit() {
	run_gerrit "$1"
	wait_for "Gerrit of $1 runs" grep -qs 'Gerrit Code Review .* ready$' "$work/$1/gerrit.log"
}
# stop_gerrit SITE [SIGNAL]
stop_gerrit() {
	kill "-${2:-TERM}" "${gerrit[$1]}" 2>/dev/null || true
	wait "${gerrit[$1]}" 2>/dev/null || true
}
# fails_to_start SITE TEXT: Gerrit ends by itself, and its log says TEXT.
fails_to_start() {
	run_gerrit "$1"
	wait "${gerrit[$1]}" 2>/dev/null && return 1
	grep -q -e "$2" "$work/$1/gerrit.log"
}
