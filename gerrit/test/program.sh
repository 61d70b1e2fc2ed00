# Sourced: sets gerrit_program, the command that runs Gerrit; classes, an archive of its classes; war, its WAR or ""; and jar, the guard
# for it. Of Gerrit 3.9.4 there is a WAR on Maven Central. Of later versions there are the classes, with which Gerrit runs without a web UI
# and does not load what is in lib/.

# artifact GROUP NAME VERSION: prints the path of a jar, which Maven fetches if it is not there.
artifact() {
	local path=${MAVEN_REPOSITORY:-$HOME/.m2/repository}/${1//./\/}/$2/$3/$2-$3.jar
	[[ -e $path ]] || ${MVN:-mvn} -q -B dependency:get -Dtransitive=false -Dartifact="$1:$2:$3" >&2
	echo "$path"
}

version=${GERRIT_VERSION:-3.9.4}
case $version in
3.9.4)
	war=$("$here/war.sh" $version)
	classes=$war
	jar=$(realpath "$here/../target/3.9/globalrefdb-gerrit-3.9.jar")
	gerrit_program=("$(java_home 17)/bin/java" -Xmx700m -jar "$war")
	;;
3.13.*)
	war=
	jar=$(realpath "$here/../target/3.13/globalrefdb-gerrit-3.13.jar")
	classes=$(artifact com.google.gerrit gerrit-plugin-api "$version")
	class_path=$jar:$classes:$(artifact com.google.gerrit gerrit-acceptance-framework "$version")
	for name in bcprov bcpkix bcpg bcutil; do class_path+=:$(artifact org.bouncycastle $name-jdk18on 1.83); done
	gerrit_program=("$(java_home 21)/bin/java" -Xmx700m "-Dlog4j.configuration=file:$here/log4j.properties" -cp "$class_path" "$here/Gerrit.java")
	;;
*) echo "Gerrit $version can't be run: 3.9.4, 3.13.5" >&2 && exit 2 ;;
esac
