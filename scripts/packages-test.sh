#!/usr/bin/env bash
# Installs the .deb as a user would, at two sites, each of them a Debian of its own, made by mmdebstrap: takes the steps of
# docs/GIT.md as they are written there, with the package of an earlier version; upgrades both sites while pushes run;
# removes the package. Run as root on Debian, with what make deps installs.
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
	for program in mmdebstrap unshare dpkg-deb bsdtar git; do
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
	mkdir "$work/new" "$work/old"
	cp "$work"/dist/*.deb "$work/new"

	# The version before is the last release. Before the first one, it is the programs from before the newest change of
	# the hook, in a package as of today.
	if ! earlier=$(git describe --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null); then
		earlier=$(git log --first-parent --diff-merges=first-parent --no-patch --max-count=1 --format=%H -- cmd/refdb-hook site/wire ':!*_test.go')^
	fi
	git worktree add --quiet --detach "$work/earlier" "$earlier"
	(cd "$work/earlier" && ./scripts/build.sh "$work/bin" >"$work/earlier.log" 2>&1) || fail "$earlier is not built: $(cat "$work/earlier.log")"
	cp "$work/earlier/docs/OPERATIONS.md" "$work/old/" # its grants are those of its schema
	dpkg-deb --raw-extract "$work"/new/*.deb "$work/package"
	cp "$work"/bin/refdb{ctl,-hook} "$work/package/usr/bin/"
	sed -i 's/^Version: .*/Version: 0.0.0-1/' "$work/package/DEBIAN/control"
	dpkg-deb --root-owner-group -Zgzip -z1 --build "$work/package" "$work/old/globalrefdb_0.0.0-1_$(dpkg --print-architecture).deb" >/dev/null

	wait "$root" || fail "mmdebstrap: $(cat "$work/mmdebstrap.log")"
	root=
	# All processes and mounts end with the namespaces.
	unshare --mount --pid --fork --kill-child --mount-proc "$0" in "$work"
	exit
fi

work=$2 # from here on in namespaces of its own

# await waits for an event. A busy machine takes longer; only a defect reaches the limit.
await() { # WHAT COMMAND …
	local what=$1 end=$((SECONDS + 300))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || fail "waited in vain: $what"
		sleep 0.1
	done
}

at() { # SITE COMMAND: as root at a site
	chroot "$work/$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
		REFDB_HOOK_TIMEOUT=5m ${REFDB_URL:+REFDB_URL="$REFDB_URL"} bash -euo pipefail -c "cd && $2"
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

run() { # SITE, and commands on standard input: prints what they print
	local command
	while IFS= read -r command <&3; do
		command=${command//_amd64.deb/_$(dpkg --print-architecture).deb}
		echo "$1: $command" >&2
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
	at "$site" "cp /etc/refdb/site.config.example /etc/refdb/site.config && sed -i 's/name = eu /name = $site /' /etc/refdb/site.config"
	# Only a hang reaches these limits; a daemon that stops leaves a push that waits for this test to the next one.
	at "$site" "printf '    timeout = 5m\n    lockWait = 5m\n    stopTimeout = 2s\n' >>/etc/refdb/site.config"
	at "$site" "install -m 600 /dev/stdin /etc/refdb/database <<<'postgres://refdb_site@/refdb?host=/run/postgresql'"
	step 2 | run "$site"
done
at eu 'runuser -u git -- bash -euc "
	git init --quiet --initial-branch=main /home/git/work && cd /home/git/work
	git -c user.name=A -c user.email=a@example.com commit --quiet --allow-empty --message first
	git clone --quiet --bare . /srv/git/team/app.git"'
# Two of the repository'"'"'s own hooks, in which pushes can be held.
at eu 'cd /srv/git/team/app.git/hooks
	printf "#!/bin/sh\nif read -r _ _ ref && [ \"\$ref\" = refs/heads/held-early ] && [ -e /tmp/hold ]; then touch /tmp/held-early; while [ -e /tmp/hold ]; do sleep 0.1; done; fi\n" >pre-receive
	printf "#!/bin/sh\nif [ \"\$1\" = committed ] && grep -q refs/heads/held-late && [ -e /tmp/hold ]; then touch /tmp/held-late; while [ -e /tmp/hold ]; do sleep 0.1; done; fi\n" >reference-transaction
	chmod 755 pre-receive reference-transaction
	chown git: pre-receive reference-transaction'
step 3 | run eu
step 4 | run us
at us 'runuser -u git -- git clone --quiet /srv/git/team/app.git /home/git/work'
push() { at "$1" "runuser -u git -- git -C /home/git/work push --quiet /srv/git/team/app.git HEAD:refs/heads/$2" 2>&1; }
has() { at "$1" "runuser -u git -- git -C /srv/git/team/app.git rev-parse --verify --quiet refs/heads/$2"; }
push eu from-eu || fail "a push at eu is refused"
push us from-us || fail "a push at us is refused"
await "us has the push of eu" has us from-eu
await "eu has the push of us" has eu from-us
for site in eu us; do
	out=$(step 5 | run "$site" 2>&1)
	[[ $out == *": 0 findings"* && $out == *refs/heads/from-eu* && $out == *refs/heads/from-us* ]] || fail "step 5 at $site: $out"
done

echo "== the upgrade, while pushes run"
load() { # SITE: pushes until the test says stop
	local n=0 said
	until [[ -e $work/stop ]]; do
		n=$((n + 1))
		until said=$(push "$1" "load-$1-$n"); do
			if [[ $said != *"the site daemon is stopping: nothing was changed, retry in a few seconds"* ]]; then
				echo "$1, push $n: $said" >>"$work/refused"
				break
			fi
			echo >>"$work/retried"
		done
		echo "$n" >"$work/pushed.$1.new" && mv "$work/pushed.$1.new" "$work/pushed.$1"
	done
}
pushed() { cat "$work/pushed.$1" 2>/dev/null || echo 0; }
more() { [[ $(pushed "$1") -gt $2 ]]; }
load eu &
load us &
await "pushes at eu" more eu 2
await "pushes at us" more us 2
touch "$work/eu/tmp/hold"
chmod 1777 "$work/eu/tmp"
push eu held-early >"$work/held-early" & early=$!
push eu held-late >"$work/held-late" & late=$!
await "a push is held before it moves refs" test -e "$work/eu/tmp/held-early"
await "a push is held after it moved refs" test -e "$work/eu/tmp/held-late"
hooks=$(readlink "$work/eu/srv/git/.refdb-hooks/current")
for site in eu us; do
	rm "$work/$site"/root/*.deb
	cp "$work"/new/*.deb "$work/$site/root/"
	section "Upgrading" | run "$site"
	before=$(pushed "$site")
	await "pushes at $site go on" more "$site" $((before + 2))
done
turned() { local now; now=$(readlink "$work/eu/srv/git/.refdb-hooks/current") && [[ $now != "$hooks" ]]; }
await "the new daemon has replaced the hooks" turned
cmp "$work/eu/usr/bin/refdb-hook" "$work/eu/srv/git/.refdb-hooks/current/reference-transaction" || fail "the site's hooks are not the package's"
rm "$work/eu/tmp/hold"
wait "$early" || fail "the push that was held before it moved refs failed: $(cat "$work/held-early")"
wait "$late" || fail "the push that was held after it moved refs failed: $(cat "$work/held-late")"
await "us has the push" has us held-early
await "us has the push" has us held-late
REFDB_URL="postgres://refdb_owner@/refdb?host=/run/postgresql" at eu "refdbctl migrate up"
touch "$work/stop"
wait
[[ ! -e $work/refused ]] || fail "pushes were refused: $(cat "$work/refused")"
echo "accepted: $(pushed eu) pushes at eu, $(pushed us) at us; refused: none; told to retry: $(cat "$work/retried" 2>/dev/null | wc -l)"

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
says us "" "apt install ./globalrefdb_*.deb && systemctl enable --now refdb-site"
push us after-reinstall || fail "a push is refused after the package was installed again"

echo "== the removal of docs/INSTALL.md"
section "Removing" | run eu
push eu after-disable || fail "a push to a repository that is not guarded is refused"
says eu "" "apt purge globalrefdb && test -e /etc/refdb/site.config && test -d /var/lib/refdb/journal && getent passwd git && ! test -e /usr/bin/refdbctl"

echo "packages-test: all is as the documentation says"
