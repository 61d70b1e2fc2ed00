# Sourced: holds a thread of eu's Gerrit, which is debugged. There is nothing for this in the guard.

debug_port=$((15000 + RANDOM % 5000))
debugged=-agentlib:jdwp=transport=dt_socket,server=y,suspend=n,address=127.0.0.1:$debug_port
# Where a thread has its OK and has moved nothing yet; where it has made the lock file of a single ref; where it has moved all refs,
# and the daemon does not know.
before_the_batch="org.eclipse.jgit.internal.storage.file.PackedBatchRefUpdate execute"
before_the_ref="org.eclipse.jgit.internal.storage.file.RefDirectoryUpdate doUpdate"
before_the_report="com.github.globalrefdb.gerrit.RefGuard read"

# hold CLASS METHOD: the next thread that begins this method is held there, until let_go.
hold() {
	rm -f "$work/hold.in"
	mkfifo "$work/hold.in"
	"$java" "$here/Hold.java" "$debug_port" "$1" "$2" <>"$work/hold.in" >"$work/hold.out" 2>&1 &
	holder=$!
	processes+=($!)
	until grep -q ready "$work/hold.out"; do
		kill -0 "$holder" 2>/dev/null || { cat "$work/hold.out"; return 1; }
		sleep 0.1
	done
}
is_held() { grep -q held "$work/hold.out"; }
let_go() {
	echo >"$work/hold.in"
	wait "$holder"
}
