# Sourced: the database that the sites share. own_server is the kind of the server that is started for the test, or empty.

own_server=
far_database= # the URL by which the server's database is 20 ms away, there and back; "" or "-": there is none
# build_database URL: builds the program that runs such a server, if URL names a kind.
build_database() {
	case $1 in
	postgres | spanner)
		(cd "$here/testdatabase" && ${GO:-go} build -o "$work/testdatabase" .)
		own_server=$1
		;;
	esac
}
open_database() {
	export REFDB_URL=${REFDB_URL:-sqlite:$work/refdb.sqlite}
	[[ $own_server ]] || return 0
	coproc server { exec "$work/testdatabase" "$own_server" "$work/database.log"; }
	server_in=${server[1]} server_out=${server[0]}
	read -r -t $patience REFDB_URL far_database SPANNER_EMULATOR_HOST <&"$server_out" || fail "no $own_server"
	[[ -z $SPANNER_EMULATOR_HOST ]] || export SPANNER_EMULATOR_HOST
}
# database COMMAND: kill or start.
database() {
	local answer
	echo "$1" >&"$server_in"
	read -r -t $patience answer <&"$server_out" && [[ $answer == "$1" ]]
}
# The server ends when its input does.
end_database() {
	[[ ${server_PID-} ]] || return 0
	local pid=$server_PID
	exec {server_in}>&-
	wait "$pid" 2>/dev/null || true
}
