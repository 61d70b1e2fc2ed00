#!/usr/bin/env bash
# Builds the images and runs the commands of README.md and docs/CONTAINERS.md as they are written there, with podman, as root. No registry of
# images is needed: the base image, PostgreSQL and nginx come from Debian's packages. Images stay for the next run.
#
#   deploy/test/run.sh             all of it
#   deploy/test/run.sh check       whether this machine has what it takes; says what is missing
#   deploy/test/run.sh postgres N  only makes an image of PostgreSQL with the name N, for tests that start containers
set -euo pipefail
cd "$(dirname "$0")/../.."

document=docs/CONTAINERS.md
images=localhost/globalrefdb
base=$images/test-debian:bookworm
go=${GO:-go}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

fail() {
	echo "containers-test: $*" >&2
	exit 1
}

# settle makes podman work on a machine without systemd: runc also where crun does not run, and no limits that a process
# without privileges can't set.
settle() {
	[[ -z ${CONTAINERS_CONF-} && ! -e /etc/containers/containers.conf ]] || return 0
	cat >"$tmp/containers.conf" <<-CONF
		[containers]
		default_ulimits = ["nofile=$(ulimit -Hn):$(ulimit -Hn)", "nproc=4096:4096"]
		[engine]
		runtime = "runc"
	CONF
	export CONTAINERS_CONF=$tmp/containers.conf
}

missing() {
	local program
	[[ $(id -u) == 0 ]] || echo "root"
	for program in podman runc podman-compose mmdebstrap git unshare python3 curl openssl; do command -v "$program" || echo "$program"; done | grep -v /
}

# build DOCKERFILE TARGET CONTEXT makes an image, of a stage of the file.
build() {
	local target=$2
	echo "== image $images/$4"
	# The build's Go and modules are this machine's. A published image has a health check, for which it needs Docker's format.
	podman build --quiet --format docker --network host --file "$1" --target "$target" --tag "$images/$4" \
		--build-arg "GO=$base" --build-arg "BASE=$base" \
		--volume "$("$go" env GOROOT):/usr/local/go:ro" --volume "$("$go" env GOMODCACHE):/root/go/pkg/mod" \
		--volume "$("$go" env GOCACHE):/root/.cache/go-build" "$3" 2>&1 || fail "$images/$4 can't be built"
}

make_base() {
	podman image exists "$base" && return
	echo "== image $base"
	mmdebstrap --quiet --variant=minbase bookworm "$tmp/base.tar"
	podman import --quiet "$tmp/base.tar" "$base"
	rm "$tmp/base.tar"
}

make_postgres() { build deploy/test/Dockerfile postgres deploy/test test-postgres; }

case ${1-} in
check)
	lacks=$(missing | paste -sd ' ') || true
	[[ -z $lacks ]] || { echo "which need $lacks"; exit 1; }
	settle
	podman info >/dev/null 2>"$tmp/error" || { echo "as podman does not run: $(tail -1 "$tmp/error")"; exit 1; }
	exit
	;;
postgres)
	settle
	make_base
	make_postgres
	podman tag "$images/test-postgres" "${2:?usage: deploy/test/run.sh postgres NAME}"
	exit
	;;
'') ;;
*) fail "unknown argument $1" ;;
esac

lacks=$(missing | paste -sd ' ') || true
[[ -z $lacks ]] || fail "needs $lacks: make deps"
settle
make_base
make_postgres
build deploy/test/Dockerfile nginx deploy/test test-nginx
build deploy/Dockerfile refdbctl . refdbctl
build deploy/Dockerfile server . server
build deploy/Dockerfile site . site
# Each build leaves a copy of the source behind.
podman image prune --force --filter label=org.opencontainers.image.source=https://github.com/globalrefdb/globalrefdb >/dev/null
export POSTGRES_IMAGE=$images/test-postgres NGINX_IMAGE=$images/test-nginx
site=$images/site

# says WORDS COMMAND… runs a command, which must fail and say the words on one line.
says() {
	local words=$1 out
	shift
	if out=$("$@" 2>&1); then fail "this succeeded: $*: $out"; fi
	[[ $out == *"$words"* ]] || fail "$* says $out, not: $words"
	[[ $(grep -c . <<<"$out") == 1 || $words == *namespaces* ]] || fail "$* says more than one line: $out"
	echo "refused, as it should be: $words"
}

echo "== the images by themselves"
for image in refdbctl server site; do
	[[ $(podman image inspect --format '{{.Config.User}}' "$images/$image") == 10001:10001 ]] || fail "$image runs as root"
done
podman run --rm --read-only "$images/refdbctl" version
podman run --rm --read-only "$images/server" --version
config=$PWD/deploy/eu.config:/etc/refdb/site.config:ro
install -d "$tmp/roots"
run=(podman run --rm --no-healthcheck --read-only --tmpfs /tmp)
says "site.config can't be read: mount the site's configuration there" "${run[@]}" "$site"
says "/srv/git is not in a volume, and would be lost with the container: mount one, such as --volume eu:/srv" "${run[@]}" --volume "$config" "$site"
says "/srv/git is not in a volume" "${run[@]}" --volume "$config" "$site" refdbctl site serve
says "user 10001 can't write to /srv/git: make it the owner of the volume" "${run[@]}" --volume "$config" --volume "$tmp/roots:/srv" "$site"
# podman makes a read-only container's /tmp and /run writable unless it is told otherwise. Docker does not.
bare=(podman run --rm --no-healthcheck --read-only --read-only-tmpfs=false --volume "$config" --volume /srv)
says "user 10001 can't write to /tmp: mount a writable directory there, such as --tmpfs /tmp" "${bare[@]}" "$site"
for command in "" "refdbctl site serve"; do
	# shellcheck disable=SC2086 # the words of a command
	says "user 10001 can't write to /run/refdb: mount a writable directory there, such as --volume eu-sockets:/run/refdb" \
		"${bare[@]}" --tmpfs /tmp "$site" $command
done

echo "== the commands of README.md and $document"
down() {
	(cd deploy && timeout 120 podman-compose down --volumes) >"$tmp/down" 2>&1 || cat "$tmp/down"
	podman volume rm --force deploy_us >/dev/null 2>&1 || true # podman-compose run has made it, and forgotten it
}
down
logs() {
	local status=$?
	if [[ $status != 0 ]]; then
		for name in db eu us server web; do
			echo "-- the end of the log of $name"
			podman logs --tail 20 "deploy_${name}_1" 2>&1 || true
		done
		echo "containers-test: failed" >&2
	fi
	down
	rm -rf "$tmp"
}
trap logs EXIT
{
	awk '/^```sh$/ { getline; on = /podman-compose/ } /^```$/ { on = 0 } on' README.md
	sed -n 's/^    \$ //p' "$document"
} | sed "s|/tmp/|$tmp/|g" >"$tmp/commands"
[[ $(wc -l <"$tmp/commands") == 11 ]] || fail "$(wc -l <"$tmp/commands") commands were found, not 11"
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.com GIT_CONFIG_GLOBAL=/dev/null
(
	while read -r line; do
		echo "\$ $line"
		# cd has to be this shell's. podman-compose says a lot, and does not pass on the status of what it runs.
		if [[ $line == cd\ * ]]; then cd deploy && line=${line#cd deploy && }; fi
		# On a busy machine a copy may be behind for more than a second: readers are asked to come again. The name server of
		# Debian 12's podman loses queries when containers start and end: then the database is not reached.
		for try in {1..120}; do
			status=0
			timeout 600 bash -c "$line" </dev/null >"$tmp/out" 2>&1 || status=$?
			grep 'error: 503\|no answer from the database\|no such host' "$tmp/out" && [[ $line != *"until git"* ]] || break
			[[ $try != 120 ]] || fail "this did not end"
			sleep 1
		done
		[[ $status == 0 ]] || { cat "$tmp/out"; fail "the command failed"; }
		grep -v "^\['podman'\|^podman \|^\*\* \|^using podman\|healthchecks:\|^exit code\|^Error: \(inspecting\|creating\)\|syslog" "$tmp/out" || true
	done <"$tmp/commands"
)

echo "== what they must have done"
in_us() { podman exec deploy_us_1 "$@"; }
main=$(git -C "$tmp/app" rev-parse main)
[[ $(git -C "$tmp/app" log --format=%s main | sort -u | xargs) == "one two" ]] || fail "the commits are not one and two"
[[ $(podman exec deploy_eu_1 git -C git/team/app.git rev-parse main) == "$main" ]] || fail "eu lacks the last push"
[[ $(in_us git -C git/team/app.git rev-parse main) == "$main" ]] || fail "us lacks the last push"
in_us refdbctl site check --all || fail "site check has findings"
podman exec deploy_eu_1 refdbctl refs log team/app refs/heads/main | tee "$tmp/log"
[[ $(grep -c alice "$tmp/log") == "$(git -C "$tmp/app" rev-list --count main)" ]] || fail "the history lacks who pushed"
podman healthcheck run deploy_eu_1
if podman exec deploy_eu_1 touch /etc/x 2>/dev/null; then fail "the root of eu can be written to"; fi

echo "== the service"
# call TOKEN URL METHOD JSON calls refdb-server, until it knows the token and the rule.
call() {
	for _ in {1..300}; do
		if curl --silent --show-error --fail-with-body --insecure --output "$tmp/answer" -H "Authorization: Bearer $1" \
			-H 'Content-Type: application/json' --data "$4" "$2/refdb.v1.RefdbService/$3" 2>"$tmp/error"; then return; fi
		sleep 0.2
	done
	fail "$3: $(cat "$tmp/error" "$tmp/answer")"
}
token=$(podman exec deploy_eu_1 refdbctl token create ci 2>/dev/null)
podman exec deploy_eu_1 refdbctl access allow ci lock team/app 'refs/locks/*'
call "$token" http://127.0.0.1:8080 Acquire '{"project": "team/app", "refs": ["refs/locks/deploy"], "leaseTime": "60s"}'
grep -q '"acquired"' "$tmp/answer" || fail "no lock: $(cat "$tmp/answer")"
podman exec deploy_eu_1 refdbctl locks list | grep -q refs/locks/deploy || fail "eu does not see the lock of the service"

echo "== other containers of a site"
push=(--rm --no-healthcheck --volumes-from deploy_eu_1 --entrypoint git "$site" -C git/team/app.git update-ref refs/heads/other main)
says "run in different PID namespaces" podman run "${push[@]}"
podman run --pid container:deploy_eu_1 "${push[@]}"
in_us sh -c 'until [ "$(git -C git/team/app.git rev-parse refs/heads/other)" = '"$main"' ]; do sleep 0.1; done'

echo "== a site that can write to its volumes and /tmp alone, whose end is in good order"
alone=globalrefdb-test-alone
podman rm --force $alone >/dev/null 2>&1 || true
podman run --detach --name $alone --no-healthcheck --read-only --read-only-tmpfs=false --tmpfs /tmp --cap-drop all --env REFDB_URL=sqlite:/srv/refs.sqlite \
	--volume "$config" --volume /srv --volume /run/refdb "$site" >/dev/null
in_alone() { podman exec $alone "$@"; }
in_alone refdbctl migrate up
in_alone sh -c 'until refdbctl site status >/dev/null 2>&1; do sleep 1; done'
in_alone git init --quiet --bare git/a.git
in_alone refdbctl site enable --new a >/dev/null
in_alone sh -c 'git -C git/a.git update-ref refs/tags/x $(git -C git/a.git hash-object -t tree -w --stdin </dev/null)'
in_alone refdbctl refs list a
podman stop --time 120 $alone >/dev/null
ended=$(podman inspect --format '{{.State.ExitCode}}' $alone)
[[ $ended == 0 ]] || { podman logs $alone; fail "it ended with $ended"; }
podman start $alone >/dev/null
in_alone sh -c 'until refdbctl site status >/dev/null 2>&1; do sleep 1; done'
in_alone sh -c 'kill -KILL "$(cut -d " " -f 1 /proc/1/task/1/children)"' # the daemon is the entry point's first child
ended=$(podman wait $alone)
[[ $ended == 1 ]] || { podman logs $alone; fail "without its daemon it ended with $ended"; }
podman rm --force --volumes $alone >/dev/null

echo "== the pod of deploy/kubernetes.yaml"
# Its containers' commands and files, in a pod that shares what a pod of Kubernetes shares with shareProcessNamespace.
python3 - "$tmp/kube" <<-'PYTHON'
	import os, sys, yaml
	objects = list(yaml.safe_load_all(open("deploy/kubernetes.yaml")))
	get = lambda kind, name: next(o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name)
	pod = get("StatefulSet", "refdb-eu")["spec"]["template"]["spec"]
	containers = {c["name"]: c for c in pod["initContainers"] + pod["containers"] + get("Deployment", "refdb-server")["spec"]["template"]["spec"]["containers"]}
	files = {
	    "site.config": get("ConfigMap", "refdb-eu")["data"]["site.config"],
	    "nginx.conf": get("ConfigMap", "refdb-nginx")["data"]["nginx.conf"],
	    "users/git.users": get("Secret", "refdb-users")["stringData"]["git.users"],
	    "database/database": "sqlite:/srv/refs.sqlite\n",
	    "issuers/issuers.json": get("ConfigMap", "refdb-server")["data"]["issuers.json"],
	}
	for name in containers:
	    files["args." + name] = "".join(w + "\n" for w in containers[name].get("command", []) + containers[name].get("args", []))
	for name, text in files.items():
	    path = os.path.join(sys.argv[1], name)
	    os.makedirs(os.path.dirname(path), exist_ok=True)
	    open(path, "w").write(text)
PYTHON
chmod -R a+rX "$tmp" # the containers' user reads the files
pod=globalrefdb-test-pod
podman pod rm --force $pod >/dev/null 2>&1 || true
podman pod create --infra-image "$site" --infra-command "sleep infinity" --share net,ipc,uts,pid $pod >/dev/null
in_pod() {
	local name=$1 image=$2 words
	shift 2
	mapfile -t words <"$tmp/kube/args.$name"
	podman run --detach --pod $pod --name $pod-"$name" --no-healthcheck --user 10001:10001 --read-only --read-only-tmpfs=false --tmpfs /tmp --cap-drop all \
		--volume $pod-sockets:/run/refdb "$@" "$image" "${words[@]}" >/dev/null
}
of_site=(--volume $pod-data:/srv --volume "$tmp/kube/site.config:/etc/refdb/site.config:ro" --volume "$tmp/kube/database:/etc/refdb-database:ro")
podman run --rm --no-healthcheck --env REFDB_URL=sqlite:/srv/refs.sqlite --volume $pod-data:/srv "$site" refdbctl migrate up
in_pod daemon "$site" "${of_site[@]}"
in_pod http "$site" "${of_site[@]}"
in_pod web "$images/test-nginx" --volume "$tmp/kube/nginx.conf:/etc/nginx/nginx.conf:ro" --volume "$tmp/kube/users:/etc/refdb-users:ro"
podman exec --interactive $pod-daemon bash -eu <<-'COMMANDS'
	until refdbctl site status >/dev/null 2>&1; do sleep 1; done
	git init --quiet --bare --initial-branch=main git/a.git
	refdbctl site enable --new a >/dev/null
	until [ -S /run/refdb/http.sock ]; do sleep 1; done
	export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.com
	git clone --quiet http://alice:secret@localhost:8080/a.git /tmp/a
	git -C /tmp/a commit --quiet --allow-empty --message "pushed in a pod"
	git -C /tmp/a push --quiet origin HEAD:main
	refdbctl --db sqlite:/srv/refs.sqlite refs list a
	probe() { # /dev/tcp is bash's
	    exec 3<>"/dev/tcp/localhost/$1"
	    printf 'GET %s HTTP/1.0\r\n\r\n' "$2" >&3
	    read -r status <&3
	    [[ $status == *" 200 "* ]] || { echo "$1$2: $status"; exit 1; }
	}
	for port in 9464 9471; do for path in /healthz /readyz; do probe $port $path; done; done
COMMANDS
podman pod rm --force $pod >/dev/null

echo "== the service of deploy/kubernetes.yaml"
server=globalrefdb-test-server
podman rm --force $server >/dev/null 2>&1 || true
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost \
	-keyout "$tmp/kube/tls.key" -out "$tmp/kube/tls.crt" 2>/dev/null
chmod a+r "$tmp/kube/tls.key"
cp "$tmp/kube/tls.crt" "$tmp/kube/issuers/ca.crt" # of an issuer that there is not: the server serves without its keys
mapfile -t words <"$tmp/kube/args.server"
podman run --detach --name $server --publish 127.0.0.1::9480 --read-only --read-only-tmpfs=false --cap-drop all --volume $pod-data:/srv \
	--volume "$tmp/kube/database:/etc/refdb-database:ro" --volume "$tmp/kube:/etc/refdb-server:ro" \
	--volume "$tmp/kube/issuers:/etc/refdb-issuers:ro" "$images/server" "${words[@]}" >/dev/null
at=https://$(podman port $server 9480)
curl --silent --show-error --fail --insecure --retry 60 --retry-all-errors --retry-delay 1 "$at/readyz" || { podman logs $server; fail "the service is not ready"; }
operate=(podman run --rm --no-healthcheck --env REFDB_URL=sqlite:/srv/refs.sqlite --volume $pod-data:/srv "$site" refdbctl)
token=$("${operate[@]}" token create ci 2>/dev/null)
"${operate[@]}" access allow ci read a '*'
call "$token" "$at" List '{"project": "a"}'
grep -q refs/heads/main "$tmp/answer" || fail "List has $(cat "$tmp/answer")"
podman stop --time 60 $server >/dev/null
ended=$(podman inspect --format '{{.State.ExitCode}}' $server)
[[ $ended == 0 ]] || { podman logs $server; fail "it ended with $ended"; }
podman rm $server >/dev/null
podman volume rm $pod-data $pod-sockets >/dev/null

echo "== tests that start PostgreSQL in a container"
container=$(sed -n 's/^const image = "\(.*\)"$/\1/p' test/dbtest/local/container.go)
[[ -n $container ]] || fail "test/dbtest/local/container.go names no image"
untag=:
if ! podman image exists "docker.io/library/$container"; then
	podman tag "$images/test-postgres" "docker.io/library/$container"
	untag="podman untag $images/test-postgres docker.io/library/$container" # without a name it would remove all
fi
# PostgreSQL's own programs are hidden, so that the tests need the container.
unshare --mount bash -euc 'if [[ -d /usr/lib/postgresql ]]; then mount -t tmpfs none /usr/lib/postgresql; fi; exec "$@"' unshare \
	"$go" test -count=1 -short -vet=off -run 'TestConformance/Beat' -v ./refdb/postgres >"$tmp/go" 2>&1 ||
	{ cat "$tmp/go"; $untag; fail "the tests failed"; }
$untag
grep -q -- '--- PASS: TestConformance' "$tmp/go" || { cat "$tmp/go"; fail "no test ran"; }
grep -c -- '--- PASS' "$tmp/go" | sed 's/$/ tests passed/'
echo "containers-test: passed"
