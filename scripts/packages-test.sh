#!/usr/bin/env bash
# Installs the .deb as a user would, at two sites, each of them a Debian of its own, made by mmdebstrap: takes the steps of
# README.md and docs/GIT.md as they are written there, with the package of an earlier version; upgrades both sites while pushes run, and
# once more to a later version, with which a lock of refdb-server stands; removes the package. Run as root on Debian, with what make deps installs.
#
# In a chroot no systemd runs. scripts/packages-systemctl.sh stands for it, and does what the units say.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD

fail() {
	echo "packages-test: $*" >&2
	exit 1
}

if [[ ${1-} != in ]]; then
	[[ $EUID -eq 0 ]] || fail "run it as root"
	for program in mmdebstrap unshare dpkg-deb bsdtar git ip curl jq; do
		command -v "$program" >/dev/null || fail "$program is missing: make deps, as root on Debian"
	done
	compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || fail "PostgreSQL is missing: make deps, as root on Debian"
	work=$(mktemp -d /tmp/packages-test.XXXXXX)
	root=
	clean() {
		if [[ -n $root ]] && kill "$root" 2>/dev/null; then wait "$root" || true; fi
		git worktree remove --force "$work/earlier" 2>/dev/null || true
		rm -rf --one-file-system "$work"
	}
	trap clean EXIT
	chmod 755 "$work"

	mmdebstrap --quiet --variant=minbase --include=git,procps,sudo,systemd,ca-certificates bookworm "$work/root.tar" >"$work/mmdebstrap.log" 2>&1 &
	root=$!
	DIST=$work/dist ./scripts/packages.sh here >"$work/packages.log" 2>&1 || fail "the packages are not made: $(tail -n 20 "$work/packages.log")"
	LC_ALL=C ./scripts/packages-contents.sh "$work/dist" | diff deploy/packages/contents.txt - ||
		fail "the packages do not hold what deploy/packages/contents.txt says"
	mkdir "$work/new" "$work/old" "$work/next"
	cp "$work"/dist/*.deb "$work/new"
	architecture=$(dpkg --print-architecture)
	pack() { # VERSION DIRECTORY: packs what is in $work/package
		sed -i "s/^Version: .*/Version: $1/" "$work/package/DEBIAN/control"
		dpkg-deb --root-owner-group -Zgzip -z1 --build "$work/package" "$2/globalrefdb_$1_$architecture.deb" >/dev/null
	}
	dpkg-deb --raw-extract "$work"/new/*.deb "$work/package"
	pack 9999.0.0-1 "$work/next"

	# The version before is the last release. Before the first one, it is the programs from before the newest change of
	# the hook, in a package as of today.
	if ! earlier=$(git describe --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null); then
		earlier=$(git log --first-parent --diff-merges=first-parent --no-patch --max-count=1 --format=%H -- cmd/refdb-hook site/wire ':!*_test.go')^
	fi
	git worktree add --quiet --detach "$work/earlier" "$earlier"
	(cd "$work/earlier" && ./scripts/build.sh "$work/bin" >"$work/earlier.log" 2>&1) || fail "$earlier is not built: $(cat "$work/earlier.log")"
	cp "$work/earlier/docs/OPERATIONS.md" "$work/old/" # its grants are those of its schema
	cp "$work"/bin/refdb{ctl,-hook} "$work/package/usr/bin/"
	pack 0.0.0-1 "$work/old"
	# Before this message there was, a push that met a daemon that stops was refused.
	grep -q "the site daemon is being restarted" "$work/bin/refdb-hook" || touch "$work/refuses"

	wait "$root" || fail "mmdebstrap: $(cat "$work/mmdebstrap.log")"
	root=
	# All processes and mounts end with the namespaces. The units' ports may be in use outside.
	unshare --mount --pid --net --fork --kill-child --mount-proc "$0" in "$work"
	exit
fi

work=$2 # from here on in namespaces of its own
ip link set lo up

# await waits for an event. A busy machine takes longer; only a defect reaches the limit.
await() { # WHAT COMMAND …
	local what=$1 end=$((SECONDS + 300))
	shift
	until "$@" >/dev/null 2>&1; do
		[[ ! -e $work/refused ]] || fail "pushes were refused: $(cat "$work/refused")"
		((SECONDS < end)) || fail "waited in vain: $what"
		sleep 0.1
	done
}

at() { # SITE COMMAND: as root at a site
	chroot "$work/$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
		REFDB_HOOK_TIMEOUT=5m SUDO_EDITOR=/root/edit ${REFDB_URL:+REFDB_URL="$REFDB_URL"} bash -euo pipefail -c "cd && $2"
}

says() { # SITE TEXT COMMAND: the command prints the text
	local out
	out=$(at "$1" "$3" 2>&1) || fail "at $1: $3: $out"
	[[ $out == *"$2"* ]] || fail "at $1: $3 does not say \"$2\" but: $out"
}

# step prints the commands of one of the five steps.
step() { # NUMBER
	awk -v n="$1" '/^## Setting up two sites in five steps/ { on = 1 } /^## / && !/five steps/ { on = 0 }
		on && /^[0-9]\. / { here = ($1 == n ".") } on && /^$/ { if (seen) here = 0 } on && here { seen = 1; print }' docs/GIT.md |
		tr '\n' ' ' | grep -oE '`(sudo|refdbctl) [^`]*`' | tr -d '`'
}

# section prints the commands of a section of docs/INSTALL.md.
section() { # HEADING
	awk -v h="## $1" '/^## / { on = ($0 == h) } /^```/ { code = ($0 == "```sh"); next } on && code' docs/INSTALL.md
}

# readme prints the commands of README.md that configure a site.
readme() {
	awk '/^```sh$/ { getline; on = /apt install/ } /^```$/ { on = 0 } on && !/migrate/ && /\/etc\/refdb/' README.md
}

run() { # SITE, and commands on standard input: prints what they print
	local command
	while IFS= read -r command <&3; do
		command=${command//_amd64.deb/_$(dpkg --print-architecture).deb}
		echo "$1: $command" >&2
		[[ $1 != eu ]] || echo "$command" >>"$work/commands"
		at "$1" "$command" || fail "at $1: $command"
	done 3<&0
}

echo "== the database: docs/OPERATIONS.md"
postgres=$(echo /usr/lib/postgresql/*/bin | awk '{ print $NF }')
mkdir -p "$work/pg" "$work/socket"
chown postgres "$work/pg" "$work/socket"
chmod 755 "$work/socket"
pg() { runuser -u postgres -- "$postgres/$1" "${@:2}"; }
pg initdb --auth=trust --no-sync --pgdata "$work/pg/data" >/dev/null
pg pg_ctl --wait --timeout 300 --pgdata "$work/pg/data" --log "$work/pg/log" -o "-k $work/socket -c listen_addresses=" start >/dev/null
# setup prints the indented lines up to the text after the grants.
setup() {
	awk '/^## Set-up: PostgreSQL/ { on = 1; next } on && /^    / { begun = 1; sub(/^    /, ""); print; next } begun && /^[^ ]/ { exit }' \
		"$work/old/OPERATIONS.md"
}

for site in eu us; do
	mkdir "$work/$site"
	tar --extract --file "$work/root.tar" --directory "$work/$site"
	mount --types proc proc "$work/$site/proc"
	mount --rbind /dev "$work/$site/dev"
	mount --types tmpfs tmpfs "$work/$site/run"
	mkdir -p "$work/$site/run/postgresql" "$work/$site/run/systemd/system"
	mount --bind "$work/socket" "$work/$site/run/postgresql"
	install scripts/packages-systemctl.sh "$work/$site/usr/bin/systemctl"
	echo 'APT::Get::Assume-Yes "yes";' >"$work/$site/etc/apt/apt.conf.d/yes"
	echo "127.0.0.1 localhost $(uname -n)" >"$work/$site/etc/hosts" # for sudo
done
rm "$work/root.tar"

echo "== the package of the version before"
began=$SECONDS
for site in eu us; do
	cp "$work"/old/*.deb "$work/$site/root/"
	out=$(section "From a package" | sed '/systemctl edit/d' | run "$site" 2>&1) || fail "$out"
	[[ $out == *"globalrefdb: next: cp /etc/refdb/site.config.example"* ]] || fail "the package does not say what is next: $out"
	says "$site" "root root 755" "stat --format '%U %G %a' /etc/refdb"
	says "$site" "git git 755" "stat --format '%U %G %a' /srv/git"
	says "$site" "/usr/bin/git-shell" "getent passwd git"
	says "$site" "" "test -e /usr/share/man/man1/refdbctl-site-serve.1.gz"
	says "$site" "complete" "source /usr/share/bash-completion/completions/refdbctl && complete -p refdbctl"
	# What systemd says about other units, such as those that are missing in this root, is not ours.
	if at "$site" "systemd-analyze verify --man=no /usr/lib/systemd/system/refdb-*.service 2>&1 || true" | grep refdb-; then fail "systemd does not understand the units"; fi
done

echo "== the five steps of docs/GIT.md"
export REFDB_URL="postgres://refdb_owner@/refdb?host=/run/postgresql"
setup | sed '/^refdbctl /,$d' | pg psql --quiet --set ON_ERROR_STOP=1 --host "$work/socket" --file -
step 1 | run eu # migrate up, doctor
{ echo '\c refdb' && setup | sed '1,/^refdbctl /d'; } | pg psql --quiet --set ON_ERROR_STOP=1 --host "$work/socket" --file -
unset REFDB_URL
for site in eu us; do
	cat >"$work/$site/root/edit" <<-EDITOR
		#!/bin/sh
		case \$1 in
		*.config) sed -i 's/name = eu /name = $site /' "\$1" ;;
		*) echo 'postgres://refdb_site@/refdb?host=/run/postgresql' >"\$1" ;;
		esac
	EDITOR
	chmod 755 "$work/$site/root/edit"
	[[ $(readme | wc -l) == 4 ]] || fail "README.md does not configure a site in four lines: $(readme)"
	readme | run "$site"
	# Only a hang reaches these limits; the first daemon leaves a push that waits for this test to the next one.
	at "$site" "printf '    timeout = 5m\n    lockWait = 5m\n    stopTimeout = 2s\n' >>/etc/refdb/site.config"
	says "$site" "root root 600" "stat --format '%U %G %a' /etc/refdb/database"
	step 2 | run "$site"
done
at eu 'runuser -u git -- bash -euc "
	git init --quiet --initial-branch=main /home/git/work && cd /home/git/work
	git -c user.name=A -c user.email=a@example.com commit --quiet --allow-empty --message first
	git clone --quiet --bare . /srv/git/team/app.git"'
# Two of the repository's own hooks, in which pushes to a branch can be held.
at eu 'mkdir -m 1777 /tmp/hold /tmp/held
	cd /srv/git/team/app.git/hooks
	hold="point=\$state.\$(sed -n \"s,.* refs/heads/,,p\" | head -n 1)
	if [ -e /tmp/hold/\$point ]; then touch /tmp/held/\$point; while [ -e /tmp/hold/\$point ]; do sleep 0.1; done; fi"
	printf "#!/bin/sh\nstate=pre-receive\n%s\n" "$hold" >pre-receive
	printf "#!/bin/sh\nstate=\$1\n%s\n" "$hold" >reference-transaction
	chmod 755 pre-receive reference-transaction
	chown git: pre-receive reference-transaction'
step 3 | run eu
step 4 | run us
at us 'runuser -u git -- git clone --quiet /srv/git/team/app.git /home/git/work'
push() { at "$1" "runuser -u git -- git -C /home/git/work push --quiet /srv/git/team/app.git HEAD:refs/heads/$2" 2>&1; }
has() { at "$1" "runuser -u git -- git -C /srv/git/team/app.git rev-parse --verify --quiet refs/heads/$2"; }
push eu from-eu || fail "a push at eu is refused"
push us from-us || fail "a push at us is refused"
echo "from the package to guarded pushes at two sites: $((SECONDS - began)) s; eu's commands:"
cat "$work/commands"
await "us has the push of eu" has us from-eu
await "eu has the push of us" has eu from-us
for site in eu us; do
	out=$(step 5 | run "$site" 2>&1)
	[[ $out == *": 0 findings"* && $out == *refs/heads/from-eu* && $out == *refs/heads/from-us* ]] || fail "step 5 at $site: $out"
done

echo "== HTTP"
# The running daemon keeps its stopTimeout. The others wait for all that this test holds.
for site in eu us; do at "$site" "sed -i 's/stopTimeout = 2s/stopTimeout = 5m/' /etc/refdb/site.config"; done
at eu "systemctl enable --now refdb-http"
# It stands for a web server.
at eu "exec runuser -u git -- systemd-socket-activate --listen 127.0.0.1:8080 /lib/systemd/systemd-socket-proxyd /run/refdb-http/socket" 2>"$work/proxy" &
push_http() { # BRANCH: pushes to eu
	at eu "runuser -u git -- git -C /home/git/work -c http.extraHeader='X-Remote-User: alice' push --quiet http://127.0.0.1:8080/team/app.git HEAD:refs/heads/$1" 2>&1
}
await "the web server" bash -c "exec 3<>/dev/tcp/127.0.0.1/8080"
said=$(push_http http-before) || fail "a push over HTTP is refused: $said"

echo "== the upgrade, while pushes run"
load() { # SITE: pushes until the test says stop
	local n=0
	until [[ -e $work/stop ]]; do
		n=$((n + 1))
		until push "$1" "load-$1-$n" >"$work/said.$1"; do
			if [[ -e $work/refuses && $(<"$work/said.$1") == *"the site daemon is stopping: nothing was changed, retry in a few seconds"* ]]; then
				echo >>"$work/retried"
			else
				echo "$1, push $n: $(<"$work/said.$1")" >>"$work/refused"
				break
			fi
		done
		echo "$n" >"$work/pushed.$1.new" && mv "$work/pushed.$1.new" "$work/pushed.$1"
	done
}
pushed() { cat "$work/pushed.$1" 2>/dev/null || echo 0; }
more() { [[ $(pushed "$1") -gt $2 ]]; }
goes_on() { # SITE
	local before
	before=$(pushed "$1")
	await "pushes at $1 go on" more "$1" $((before + 2))
}
hold() { touch "$work/eu/tmp/hold/$1"; }
held() { await "a push is held in $1" test -e "$work/eu/tmp/held/$1"; }
release() { rm "$work/eu/tmp/hold/$1"; }
upgrade() { # SITE DIRECTORY: the package alone lets refdb-http run
	local http=$work/$1/run/refdb-http.pid before='' out
	rm "$work/$1"/root/*.deb
	cp "$2"/*.deb "$work/$1/root/"
	if [[ -e $http ]]; then before=$(<"$http"); fi
	out=$(section "Upgrading" | head -n 1 | run "$1" 2>&1) || fail "$out"
	if [[ $before ]]; then
		[[ $out == *"refdb-http still runs the version before"* ]] || fail "the package says nothing of refdb-http: $out"
		[[ $(<"$http") == "$before" && -d /proc/$before ]] || fail "the package has ended refdb-http"
	fi
	section "Upgrading" | tail -n +2 | run "$1"
}
says_stopping() { await "the end of $1" grep -q msg=stopping "$work/eu/var/log/$1.log"; }
load eu & loads=$!
load us & loads="$loads $!"
goes_on eu
goes_on us
for point in pre-receive.held-early pre-receive.held-http committed.held-late; do hold "$point"; done
push eu held-early >"$work/held-early" & early=$!
push_http held-http >"$work/held-http" & http=$!
push eu held-late >"$work/held-late" & late=$!
held pre-receive.held-early  # before it moves refs
held pre-receive.held-http   # the same, over HTTP
held committed.held-late     # after it moved refs
hooks=$(readlink "$work/eu/srv/git/.refdb-hooks/current")
upgrade eu "$work/new" & upgrade=$!
says_stopping refdb-http
release pre-receive.held-http
wait "$http" || fail "the push over HTTP that was held before it moved refs failed: $(cat "$work/held-http")"
wait "$upgrade" || fail "the upgrade failed"
goes_on eu
upgrade us "$work/new"
goes_on us
turned() { local now; now=$(readlink "$work/eu/srv/git/.refdb-hooks/current") && [[ $now != "$hooks" ]]; }
await "the new daemon has replaced the hooks" turned
cmp "$work/eu/usr/bin/refdb-hook" "$work/eu/srv/git/.refdb-hooks/current/reference-transaction" || fail "the site's hooks are not the package's"
release pre-receive.held-early
release committed.held-late
wait "$early" || fail "the push that was held before it moved refs failed: $(cat "$work/held-early")"
wait "$late" || fail "the push that was held after it moved refs failed: $(cat "$work/held-late")"
for branch in held-early held-http held-late; do await "us has the push" has us "$branch"; done
REFDB_URL="postgres://refdb_owner@/refdb?host=/run/postgresql" at eu "refdbctl migrate up"

echo "== the service: docs/SERVICE.md"
unit() { sed -n '/^## With systemd/,/^## /s/^    \(sudo .*\)$/\1/p' docs/SERVICE.md; }
[[ $(unit) == "sudo systemctl enable --now refdb-server" ]] || fail "docs/SERVICE.md starts the unit otherwise: $(unit)"
unit | run eu
operate() { REFDB_URL="postgres://refdb_site@/refdb?host=/run/postgresql" at eu "refdbctl $1"; }
(umask 077 && operate "token create ci --expires 1d" | sed 's/^/Authorization: Bearer /' >"$work/header")
operate "access allow ci lock team/app 'refs/locks/*'"
call() { # METHOD JSON
	curl --silent --show-error --fail-with-body -H "@$work/header" -H 'Content-Type: application/json' --data "$2" "http://127.0.0.1:9480/refdb.v1.RefdbService/$1"
}
await "the server knows the token" call List '{"project": "team/app"}'
call Acquire '{"project": "team/app", "refs": ["refs/locks/deploy"], "leaseTime": "3600s"}' >"$work/acquired" || fail "no lock: $(cat "$work/acquired")"
serves=$(<"$work/eu/run/refdb-server.pid")

echo "== the next upgrade: the daemon stops for as long as a push takes"
rm -f "$work/refuses"
goes_on eu # with the new hooks
hold committed.held-long
push eu held-long >"$work/held-long" & long=$!
held committed.held-long
upgrade eu "$work/next" & upgrade=$!
says_stopping refdb-site
push_http while-stopping >"$work/while-stopping" & http=$!
waits() { grep -q "refdb: the site daemon is being restarted: this push waits for it" "$1"; }
await "a push waits for the next daemon" waits "$work/said.eu"
await "a push over HTTP waits for the next daemon" waits "$work/while-stopping"
release committed.held-long
wait "$long" || fail "the push that the daemon waits for failed: $(cat "$work/held-long")"
wait "$http" || fail "the push over HTTP that waited failed: $(cat "$work/while-stopping")"
wait "$upgrade" || fail "the upgrade failed"
[[ $(<"$work/eu/run/refdb-server.pid") != "$serves" ]] || fail "the package has not restarted refdb-server"
await "the new server is ready" curl --silent --fail http://127.0.0.1:9480/readyz
said=$(call Extend "{\"lock\": $(jq .acquired.lock "$work/acquired")}") || fail "after the upgrade a lock is not extended: $said"
[[ $said == *extended* ]] || fail "a lock does not outlive the upgrade: $said"
goes_on eu
upgrade us "$work/next"
goes_on us
said=$(push_http http-after) || fail "a push over HTTP is refused: $said"
for branch in held-long while-stopping http-after; do await "us has the push" has us "$branch"; done
touch "$work/stop"
# shellcheck disable=SC2086 # they are two
wait $loads
[[ ! -e $work/refused ]] || fail "pushes were refused: $(cat "$work/refused")"
echo "accepted: $(pushed eu) pushes at eu, $(pushed us) at us; refused: none; told to retry by the version before: $(cat "$work/retried" 2>/dev/null | wc -l)"

echo "== the removal: a guarded repository stays as it is"
state() { (cd "$work/us/srv/git" && find . -type f ! -path './.refdb-hooks/lock' -exec sha256sum {} + | sort -k 2 | sha256sum); }
at us "systemctl stop refdb-site"
before=$(state)
says us "globalrefdb: the repositories stay as they are" "apt remove globalrefdb"
[[ $(state) == "$before" ]] || fail "the removal changed a repository"
said=$(at us "REFDB_HOOK_TIMEOUT=1s runuser -u git -- git -C /home/git/work push --quiet /srv/git/team/app.git HEAD:refs/heads/after-removal" 2>&1) &&
	fail "a guarded repository accepted a push without a daemon"
[[ $said == *"the site daemon does not answer"* ]] || fail "without a daemon a push is told: $said"
says us "" "runuser -u git -- git clone --quiet /srv/git/team/app.git /home/git/again"
at us "touch /usr/local/bin/refdbctl /etc/systemd/system/refdb-http.service" # of an installation by hand
out=$(at us "apt install ./globalrefdb_*.deb && systemctl enable --now refdb-site" 2>&1) || fail "$out"
for warning in "refdb-http.service is used instead of the package's unit" "hides the package's /usr/bin/refdbctl"; do
	[[ $out == *"$warning"* ]] || fail "the package does not warn: $warning: $out"
done
push us after-reinstall || fail "a push is refused after the package was installed again"
at us "rmdir /run/systemd/system"
says us "systemd does not run here: restart refdbctl site serve" "apt install --reinstall ./globalrefdb_*.deb"

echo "== the removal of docs/INSTALL.md"
section "Removing" | run eu
push eu after-disable || fail "a push to a repository that is not guarded is refused"
says eu "" "apt purge globalrefdb && test -e /etc/refdb/site.config && test -d /var/lib/refdb/journal && getent passwd git && ! test -e /usr/bin/refdbctl"

echo "packages-test: all is as the documentation says"
