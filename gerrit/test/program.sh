# Sourced: sets gerrit_program, the command that runs Gerrit; java, which runs it; war, its WAR; classes, an archive of its classes; and jar,
# the guard for it. Of Gerrit 3.9.4 there is a WAR on Maven Central. Of later versions there are the classes, of which one is made here.

# artifact GROUP NAME VERSION: prints the path of a jar, which Maven fetches if it is not there.
artifact() {
	local path=${MAVEN_REPOSITORY:-$HOME/.m2/repository}/${1//./\/}/$2/$3/$2-$3.jar
	[[ -e $path ]] || ${MVN:-mvn} -q -B dependency:get -Dtransitive=false -Dartifact="$1:$2:$3" >&2
	echo "$path"
}

# make_war LIBRARY...: prints the path of a WAR that is made of these, and runs as the published one does, but for the web UI.
make_war() {
	local parts=$work/war
	mkdir -p "$parts/WEB-INF/lib" "$parts/version/com/google/gerrit/common"
	cp "$@" "$parts/WEB-INF/lib/"
	unzip -qo "$1" 'com/google/gerrit/launcher/*' -d "$parts"
	echo "v$version" >"$parts/version/com/google/gerrit/common/Version"
	"${java%java}jar" cf "$parts/WEB-INF/lib/version.jar" -C "$parts/version" com
	"${java%java}jar" cf0e "$work/gerrit.war" com.google.gerrit.launcher.GerritLauncher -C "$parts" com -C "$parts" WEB-INF
	rm -r "$parts"
	echo "$work/gerrit.war"
}

version=${GERRIT_VERSION:-3.9.4}
case $version in
3.9.4)
	java=$(java_home 17)/bin/java
	war=$("$here/war.sh" $version)
	classes=$war
	jar=$(realpath "$here/../target/3.9/globalrefdb-gerrit-3.9.jar")
	gerrit_program=("$java" -Xmx700m -jar "$war")
	;;
3.13.*)
	jar=$(realpath "$here/../target/3.13/globalrefdb-gerrit-3.13.jar")
	classes=$(artifact com.google.gerrit gerrit-plugin-api "$version")
	libraries=("$classes" "$(artifact com.google.gerrit gerrit-acceptance-framework "$version")")
	for name in bcprov bcpkix bcpg bcutil; do libraries+=("$(artifact org.bouncycastle $name-jdk18on 1.83)"); done
	java=$(java_home 21)/bin/java
	war=$(make_war "${libraries[@]}")
	gerrit_program=("$java" -Xmx700m "-Dlog4j.configuration=file:$here/log4j.properties" -jar "$war")
	;;
*) echo "Gerrit $version can't be run: 3.9.4, 3.13.5" >&2 && exit 2 ;;
esac
