#!/usr/bin/env bash
# Compiles the guard for each series of Gerrit, runs its tests on it, and looks whether all classes are known that can go past it.
# What is published of Gerrit from 3.11 on needs Java 21.
# Usage: versions.sh [VERSION...]
set -euo pipefail
cd "$(dirname "$0")/.."

source ./test/java.sh
versions=("$@")
[[ $# -gt 0 ]] || versions=(3.9.4 3.10.2 3.11.1 3.12.2 3.13.5 3.14.2)

for version in "${versions[@]}"; do
	echo "Gerrit $version"
	options=()
	home=$(java_home 17)
	minor=${version#3.}
	if [[ ${minor%%.*} -ge 11 ]]; then
		options=(-Dmaven.compiler.release=21)
		home=$(java_home 21)
	fi
	JAVA_HOME=$home ${MVN:-mvn} -q -B test "${options[@]}" ${FLAGS-} -Dgerrit.version="$version" -Dgerrit.series="check-$version"
	./test/past_the_manager.sh "${MAVEN_REPOSITORY:-$HOME/.m2/repository}/com/google/gerrit/gerrit-plugin-api/$version/gerrit-plugin-api-$version.jar"
done
