# Sourced: finds a JDK.

# java_home MAJOR prints where a JDK of that major version or a later one is; of several the oldest.
java_home() {
	local home major
	for home in ${JAVA_HOME:+"$JAVA_HOME"} /usr/lib/jvm/* /opt/*jdk* ~/.sdkman/candidates/java/*; do
		[[ -x $home/bin/javac ]] || continue
		major=$("$home/bin/javac" -version 2>&1 | sed -E 's/^javac ([0-9]+).*/\1/')
		[[ $major -lt $1 ]] || echo "$major $home"
	done | sort -n | head -1 | cut -d' ' -f2- | grep . || {
		echo "no JDK $1 or later: set JAVA_HOME, or install one below /usr/lib/jvm" >&2
		return 1
	}
}
