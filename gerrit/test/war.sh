#!/usr/bin/env bash
# Prints the path of Gerrit's WAR of a version, which Maven fetches if it is not there.
set -euo pipefail
version=${1:?usage: war.sh VERSION}
repository=${MAVEN_REPOSITORY:-$HOME/.m2/repository}
path=$repository/com/google/gerrit/gerrit-war/$version/gerrit-war-$version.war
[[ -e $path ]] || ${MVN:-mvn} -q -B dependency:get -Dtransitive=false -Dartifact="com.google.gerrit:gerrit-war:$version:war" >&2
echo "$path"
