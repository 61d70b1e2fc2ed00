#!/usr/bin/env bash
# Runs the tests of the driver, with its faults, and sites with real pushes on several versions of PostgreSQL.
#
#     scripts/test-versions.sh [14|15|16|17|18 …]      (default: all)
set -euo pipefail
cd "$(dirname "$0")/.."

versions=("$@")
if [[ $# -eq 0 ]]; then versions=(14 15 16 17 18); fi

# These builds of PostgreSQL have no pg_dump. The system's dumps a server of its own version or an older one. For newer ones
# these tests are left out; what they restore, TestAMigrationUnderLoad… and test/sites check without it.
system=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort --version-sort | tail -n 1)
dumped='ARestore|ReportBefore|Recoveries|RecoveryWaits|PositionsAreRaised|PositionsThatWent|SiteAdmits|BeforeTheAdmission|ClusterIdentity'

test() {
	trap - INT # which a command in the background ignores
	exec ./scripts/in-memory.sh "${GO:-go}" test -short -vet=off -ldflags="-s -w" -timeout 3h "$@"
}

status=0
failed=()
for version in "${versions[@]}"; do
	bin=$(scripts/postgres.sh "$version")
	echo "PostgreSQL $version: $("$bin/postgres" --version)"
	export REFDB_TEST_POSTGRES_BIN=$bin
	skip=()
	if [[ -x $system/pg_dump ]] && (($(basename "$(dirname "$system")") >= version)); then
		ln --symbolic --force "$system"/pg_{dump,restore} "$bin/"
	else
		echo "left out: tests that dump PostgreSQL $version, as the system has no pg_dump of that version"
		skip=(-skip "$dumped")
	fi
	# Each of these waits for servers and processes most of the time.
	running=() passed=true
	test "${skip[@]}" ./refdb/postgres & running+=($!)
	test -run '.*/postgres' ./migrations & running+=($!)
	test -run 'OfTwoSitesThatPushToARef|AcknowledgedValuesOfEachRef|DatabaseThatIsKilledAndComesBack|PlainRestartOfPostgreSQL' ./test/sites & running+=($!)
	for pid in "${running[@]}"; do wait "$pid" || passed=false; done
	$passed || { status=1 && failed+=("$version"); }
done
if [[ $status -ne 0 ]]; then echo "failed on PostgreSQL ${failed[*]}" >&2; fi
exit "$status"
