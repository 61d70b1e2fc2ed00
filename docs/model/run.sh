#!/usr/bin/env bash
# Checks the models of the protocols with Spin, exhaustively, and that they catch
# seeded mistakes. Usage: docs/model/run.sh [--trail VARIANT]. The first prints a
# table and exits with 1 unless every line is as it should be; the second shows
# the shortest counterexample of one variant, step by step. It installs Spin and
# a C compiler with apt-get where they are missing and it may.
set -euo pipefail

model=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
megabytes=${MODEL_MEMORY:-3000} # for the search; more is an error, not a guess

# The variants are lines of variants.txt, whose first lines say what the columns are.
variants=$(grep -v '^#' "$model/variants.txt")

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
# report. Breadth first: no depth to run out of, and shortest counterexamples. But
# endless runs, in which every process that can go on does, are searched depth first.
search() {
	local name about wanted flags promise=()
	name=$(field 1 "$1") about=$(field 2 "$1") wanted=$(field 3 "$1")
	read -ra flags <<<"$(field 4 "$1")"
	case $wanted in
	[PSWRHVACJNTF]*) promise=("-DPROMISE=${wanted#?}") ;;
	event) promise=(-DPROMISE=99) ;; # none: only the event
	esac
	local optimise=0 hash_bits=20
	if [[ $wanted == holds ]]; then optimise=2 hash_bits=23; fi
	mkdir "$work/$name"
	cd "$work/$name"
	cp "$model/$about"/*.pml .
	spin -a "${flags[@]}" "${promise[@]+"${promise[@]}"}" "$about.pml" >spin.out
	local kind=(-DSAFETY -DBFS) how=()
	if [[ ${flags[*]} == *-DFOREVER=* ]]; then kind=(-DNFAIR=3) how=(-a -f -m2000000); fi
	"${CC:-gcc}" "-O$optimise" -w "${kind[@]}" -DNOREDUCE -DVECTORSZ=512 "-DMEMLIM=$megabytes" -o pan pan.c
	./pan "-w$hash_bits" "${how[@]+"${how[@]}"}" >out 2>&1 || true
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
	[PSWRHVACJNTF]*) violated+="!\(\(\(${1#?}==0\)\|\|\(${1#?}==${1#?}\)\)\)" expected=caught ;;
	esac
	if [[ $1 == W3 ]]; then violated+='|acceptance cycle'; fi # it waits for ever
	if grep -Eq "$violated" out; then echo "$expected"; else echo "NOT ${expected^^}"; fi
}

# report LINE prints the line of the table for a variant that was searched.
report() {
	local name wanted result states depth seconds
	name=$(field 1 "$1") wanted=$(field 3 "$1")
	cd "$work/$name"
	result=$(verdict "$wanted")
	states=$(awk '/states, stored/ { print $1; exit }' out)
	depth=$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' out)
	seconds=$(sed -n 's/.*elapsed time \([0-9.]*\) seconds.*/\1/p' out)
	printf '%-22s %-6s %9s %5s %8s  %-8s %s\n' "$name" "$wanted" "${states:-?}" "${depth:-?}" "${seconds:-0}" "$result" "$(field 5 "$1")"
	case $result in
	holds | happens | caught) ;;
	*) tail -n 20 out >&2 && return 1 ;;
	esac
}

# check searches all variants that must hold, the large ones, beside all others.
check() {
	local large small line failed=0
	mapfile -t large < <(grep -E '^[^|]*\|[^|]*\|holds' <<<"$variants")
	mapfile -t small < <(grep -Ev '^[^|]*\|[^|]*\|holds' <<<"$variants")
	printf '%-22s %-6s %9s %5s %8s  %-8s %s\n' variant wanted states depth seconds result 'what it is'
	(for line in "${large[@]}"; do (search "$line"); done) &
	for line in "${small[@]}"; do
		(search "$line")
		(report "$line") || failed=1
	done
	wait "$!"
	for line in "${large[@]}"; do
		(report "$line") || failed=1
	done
	return "$failed"
}

trail() {
	local line flags file
	line=$(grep -E "^$1 *\|" <<<"$variants") || { echo "model: no variant $1; there are:" $(cut -d'|' -f1 <<<"$variants") >&2 && return 1; }
	(search "$line")
	cd "$work/$1"
	file=$(field 2 "$line").pml
	if [[ ! -e $file.trail ]]; then
		echo "model: $1 has no counterexample" && return
	fi
	mapfile -t flags <flags
	spin -t -T "${flags[@]}" "$file" | awk '
		/^spin: .*assertion/ { print "=> " $0; exit }
		/^#processes/ { exit }
		/^--- tick/ { print "--- tick " ++ticks " ---"; next }
		NF { print }'
	grep -Em1 'assertion violated|acceptance cycle' out
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
