#!/bin/bash
# Stands for systemctl in the roots of scripts/packages-test.sh: starts what a unit says, as the unit's user, with its
# standard input and directories, and stops it with SIGTERM. It knows nothing of sandboxes; DynamicUser is nobody.
set -euo pipefail

value() { # UNIT KEY
	sed -n "s/^$2=//p" "/usr/lib/systemd/system/$1.service"
}

running() { [[ -e /run/$1.pid && -d /proc/$(</run/$1.pid) ]]; }

start() {
	local user input dir
	running "$1" && return
	user=$(value "$1" User)
	user=${user:-nobody}
	input=$(value "$1" StandardInput)
	for dir in $(value "$1" RuntimeDirectory | sed 's,^,/run/,') $(value "$1" StateDirectory | sed 's,^,/var/lib/,'); do
		install -d -o "$user" "$dir"
	done
	: >"/var/log/$1.log"
	# shellcheck disable=SC2046 # systemd splits words, too
	setpriv --reuid "$user" --regid "$(id -gn "$user")" --init-groups env -i PATH=/usr/bin:/bin HOME=/home/git $(value "$1" ExecStart) \
		<"${input#file:}" >>"/var/log/$1.log" 2>&1 3>&- &
	echo $! >"/run/$1.pid"
	until grep -q 'msg=serving' "/var/log/$1.log"; do
		running "$1" || { echo "$1: $(<"/var/log/$1.log")" >&2; return 1; }
		sleep 0.1
	done
}

stop() {
	running "$1" || return 0
	kill "$(</run/$1.pid)"
	while running "$1"; do sleep 0.1; done
}

verb=
for word; do
	case $word in
	--*) ;;
	*)
		if [[ -z $verb ]]; then verb=$word && continue; fi
		case $verb in
		enable | start) start "$word" ;;
		disable | stop) stop "$word" ;;
		is-active) running "$word" || exit 3 ;;
		restart) stop "$word" && start "$word" ;;
		try-restart) if running "$word"; then stop "$word" && start "$word"; fi ;;
		*) echo "systemctl $verb: this stand-in does not know it" >&2 && exit 1 ;;
		esac
		;;
	esac
done
