#!/usr/bin/env bash
# Builds and tests both jars: for Gerrit 3.9 to 3.12, and for Gerrit from 3.13 on.
set -euo pipefail
cd "$(dirname "$0")"

source ./test/java.sh
JAVA_HOME=$(java_home 17) ${MVN:-mvn} -q -B package
JAVA_HOME=$(java_home 21) ${MVN:-mvn} -q -B package -P gerrit-3.13
ls target/3.9/globalrefdb-gerrit-3.9.jar target/3.13/globalrefdb-gerrit-3.13.jar
