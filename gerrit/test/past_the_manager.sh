#!/usr/bin/env bash
# Lists the classes of a Gerrit that can open a repository past its repository manager, and so past the guard, and compares them with
# past_the_manager.txt, which says of each why that does no harm, or what to do. A class that is not there is to be looked at first.
# Usage: past_the_manager.sh ARCHIVE...: gerrit.war, or jars such as gerrit-plugin-api.jar
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/java.sh"
[[ $# -gt 0 ]] || { echo "usage: past_the_manager.sh ARCHIVE..." >&2; exit 2; }

jdeps=$(java_home 21)/bin/jdeps # it reads classes of its own version, and before
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
jars=()
for archive; do
	case $archive in
	*.war) unzip -qo "$archive" 'WEB-INF/lib/*' 'WEB-INF/pgm-lib/*' 'WEB-INF/plugins/*' -d "$files" ;;
	*) # without the modules that it may describe, which are not there
		unzip -qo "$archive" 'com/google/*' 'org/eclipse/jgit/*' -d "$files/classes"
		jars=("$files/classes")
		;;
	esac
done
while IFS= read -r jar; do jars+=("$jar"); done < <(find "$files" -name '*.jar')

# What opens repositories of files, the parts of one that move refs or delete objects, and what a guarded one hides.
opens='org\.eclipse\.jgit\.(internal\.storage\.file\.(FileRepository|GC|RefDirectory|PackedBatchRefUpdate|ObjectDirectory)|lib\.(RepositoryCache|RepositoryBuilder|BaseRepositoryBuilder)'
opens+='|storage\.file\.FileRepositoryBuilder|api\.(Git|InitCommand|CloneCommand))|com\.google\.gerrit\.server\.git\.DelegateRepository'
found=$("$jdeps" --multi-release base -verbose:class --ignore-missing-deps -filter:none -e "$opens" "${jars[@]}" 2>/dev/null |
	awk '$2 == "->" { print $1 }' | grep -E '^com\.(google|googlesource)\.(gerrit|gitiles)\.' | sed 's/\$.*//' | sort -u) || true
[[ $found ]] || { echo "no class of Gerrit opens repositories in $*: is that a Gerrit?" >&2; exit 1; }

known=$(grep -v "^#" "$here/past_the_manager.txt" | cut -d' ' -f1)
unknown=$(comm -23 <(echo "$found") <(echo "$known" | sort -u))
echo "$(wc -l <<<"$found") classes can open repositories past the manager"
[[ -z $unknown ]] || { echo "not in past_the_manager.txt:" $unknown >&2; exit 1; }
