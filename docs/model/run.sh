#!/usr/bin/env bash
# Checks the model of the protocol with Spin, exhaustively, and that it catches
# seeded mistakes. Usage: docs/model/run.sh [--trail VARIANT]. The first prints a
# table and exits with 1 unless every line is as it should be; the second shows
# the shortest counterexample of one variant, step by step. It installs Spin and
# a C compiler with apt-get where they are missing and it may.
set -euo pipefail

model=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
megabytes=${MODEL_MEMORY:-3000} # for the search; more is an error, not a guess

# variant | what must come of it | flags | what it is
# What holds keeps P1, P2, P4, P5 and P7, unless its flags name one. A promise in
# the second column must be broken, an event must happen.
variants='
locks                 |holds |-DSITES=3                                      |three sites: acquire, beat, release
updates               |holds |-DSITES=2 -DUPDATES                            |two sites: acquire, release, fenced and unfenced updates
operator              |holds |-DSITES=2 -DOPERATOR -DPROMISE=2               |P2 even if an operator deletes locks by force
reclaim               |event |-DSITES=2 -DEVENT=1                            |a stale lock is taken over
adoption              |event |-DSITES=2 -DEVENT=2                            |an acquire finds the row of its own lost reply
refused-write         |event |-DSITES=2 -DEVENT=3 -DUPDATES                  |a frozen holder'\''s fenced update is refused
passed-lock           |event |-DSITES=2 -DEVENT=4 -DUPDATES                  |an unfenced update passes a stale lock
lost-by-beat          |event |-DSITES=2 -DEVENT=5 -DOPERATOR                 |a beat finds its lock gone
expiry                |event |-DSITES=2 -DEVENT=6                            |a holder stops though its lock was not taken
late-request          |event |-DSITES=2 -DEVENT=7                            |a request takes effect after it was given up on
resent-write          |event |-DSITES=2 -DEVENT=8 -DUPDATES                  |an update sent twice is found written
certain-release       |event |-DSITES=2 -DEVENT=9                            |a release without a reply is known to have happened
refused-beat          |event |-DSITES=2 -DEVENT=10                           |a late beat finds another'\''s lock
no-deadline           |P1    |-DSITES=2 -DNO_DEADLINE                        |the holder goes on while it cannot reach the database
put-heedless          |P1    |-DSITES=2 -DPUT_HEEDLESS -DUPDATES             |an unfenced update ignores locks
beat-unchecked        |P2    |-DSITES=2 -DBEAT_UNCHECKED                     |a beat does not compare the token
release-unchecked     |P2    |-DSITES=2 -DRELEASE_UNCHECKED                  |a release does not compare the token
fence-checked-earlier |P2    |-DSITES=2 -DFENCE_CHECKED_EARLIER -DUPDATES    |the fence is checked in a transaction before the write
put-leaves-lock       |P2    |-DSITES=2 -DPUT_LEAVES_LOCK -DUPDATES          |an unfenced update leaves the stale lock it passes
deadline-from-reply   |P4    |-DSITES=2 -DDEADLINE_FROM_REPLY                |the lease counts from the reply to a beat
no-margin             |P4    |-DSITES=2 -DNO_MARGIN                          |the lease lasts until the lock is stale
reclaim-by-delete     |P5    |-DSITES=2 -DRECLAIM_BY_DELETE                  |a stale lock is deleted, then taken in a second transaction
reclaim-unchecked     |P5    |-DSITES=2 -DRECLAIM_UNCHECKED                  |a lock seen stale is taken in a second transaction
acquire-without-nonce |P7    |-DSITES=2 -DACQUIRE_WITHOUT_NONCE              |an acquire after a lost reply does not know its own row
failed-beat-is-loss   |P7    |-DSITES=2 -DFAILED_BEAT_IS_LOSS                |a beat that failed is taken for a lost lock
update-without-compare|P7    |-DSITES=2 -DUPDATE_WITHOUT_COMPARE -DUPDATES   |an update is sent again without compare-and-put
update-absence-late   |P7    |-DSITES=2 -DUPDATE_ABSENCE_LATE -DUPDATES      |no trace of an update is trusted after the lease
release-absence-late  |P7    |-DSITES=2 -DRELEASE_ABSENCE_LATE               |a release that finds nothing is trusted after the lease
'

install_tools() {
	local missing=()
	command -v spin >/dev/null || missing+=(spin)
	command -v "${CC:-gcc}" >/dev/null || missing+=(gcc libc6-dev)
	if [[ ${#missing[@]} -eq 0 ]]; then return; fi
	if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
		echo "model: missing: ${missing[*]}. Install them (Debian, Ubuntu: apt-get install ${missing[*]}; macOS: brew install spin)" >&2
		exit 1
	fi
	echo "model: installing ${missing[*]}"
	apt-get update --quiet
	DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends "${missing[@]}"
}

# field N LINE prints the Nth column of a line of variants.
field() {
	cut -d'|' -f"$1" <<<"$2" | sed 's/^ *//; s/ *$//'
}

# search LINE checks one variant in a directory of its own, whose out is Spin's
# report. Breadth first: no depth to run out of, and shortest counterexamples.
search() {
	local name wanted flags promise=()
	name=$(field 1 "$1") wanted=$(field 2 "$1")
	read -ra flags <<<"$(field 3 "$1")"
	case $wanted in
	P*) promise=("-DPROMISE=${wanted#P}") ;;
	event) promise=(-DPROMISE=99) ;; # none: only the event
	esac
	local optimise=0 hash_bits=20
	if [[ $wanted == holds ]]; then optimise=2 hash_bits=23; fi
	mkdir "$work/$name"
	cd "$work/$name"
	cp "$model"/*.pml .
	spin -a "${flags[@]}" "${promise[@]+"${promise[@]}"}" protocol.pml >spin.out
	"${CC:-gcc}" "-O$optimise" -w -DSAFETY -DBFS -DNOREDUCE -DVECTORSZ=256 "-DMEMLIM=$megabytes" -o pan pan.c
	./pan "-w$hash_bits" >out 2>&1 || true
	printf '%s\n' "${flags[@]}" "${promise[@]+"${promise[@]}"}" >flags
}

# verdict WANTED reads Spin's report of the variant in this directory.
verdict() {
	local violated='assertion violated  *\( *' expected
	case $1 in
	holds)
		if grep -q 'errors: 0' out && ! grep -Eq 'not completed|truncated|too small' out; then
			echo holds
		else
			echo 'BROKEN OR INCOMPLETE'
		fi
		return
		;;
	event) violated+='([0-9]+)!=\1\)' expected=happens ;;
	P*) violated+="!\(\(\(${1#P}==0\)\|\|\(${1#P}==${1#P}\)\)\)" expected=caught ;;
	esac
	if grep -Eq "$violated" out; then echo "$expected"; else echo "NOT ${expected^^}"; fi
}

# report LINE prints the line of the table for a variant that was searched.
report() {
	local name wanted result states depth seconds
	name=$(field 1 "$1") wanted=$(field 2 "$1")
	cd "$work/$name"
	result=$(verdict "$wanted")
	states=$(awk '/states, stored/ { print $1; exit }' out)
	depth=$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' out)
	seconds=$(sed -n 's/.*elapsed time \([0-9.]*\) seconds.*/\1/p' out)
	printf '%-22s %-6s %9s %5s %8s  %-8s %s\n' "$name" "$wanted" "${states:-?}" "${depth:-?}" "${seconds:-0}" "$result" "$(field 4 "$1")"
	case $result in
	holds | happens | caught) ;;
	*) tail -n 20 out >&2 && return 1 ;;
	esac
}

# check searches the first variant, by far the largest, beside all others.
check() {
	local lines line failed=0
	mapfile -t lines < <(sed '/^$/d' <<<"$variants")
	printf '%-22s %-6s %9s %5s %8s  %-8s %s\n' variant wanted states depth seconds result 'what it is'
	(search "${lines[0]}") &
	for line in "${lines[@]:1}"; do
		(search "$line")
		(report "$line") || failed=1
	done
	wait "$!"
	(report "${lines[0]}") || failed=1
	return "$failed"
}

trail() {
	local line flags
	line=$(grep -E "^$1 *\|" <<<"$variants") || { echo "model: no variant $1; there are:" $(cut -d'|' -f1 <<<"$variants") >&2 && return 1; }
	(search "$line")
	cd "$work/$1"
	if [[ ! -e protocol.pml.trail ]]; then
		echo "model: $1 has no counterexample" && return
	fi
	mapfile -t flags <flags
	spin -t -T "${flags[@]}" protocol.pml | awk '
		/^spin: .*assertion/ { print "=> " $0; exit }
		/^--- tick/ { print "--- tick " ++ticks " ---"; next }
		NF { print }'
	grep -m1 'assertion violated' out
}

install_tools
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
case ${1-} in
'') check ;;
--trail) trail "${2:?usage: docs/model/run.sh --trail VARIANT}" ;;
*) echo "usage: docs/model/run.sh [--trail VARIANT]" >&2 && exit 2 ;;
esac
