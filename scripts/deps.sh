#!/usr/bin/env bash
# Installs what the tests need and this machine lacks: PostgreSQL, PgBouncer, the
# Spanner emulator (as container images where an engine runs, otherwise with apt-get, if it
# runs as root), a C compiler, for Go's race detector, and promtool, for the alerts; as root with apt-get
# also Gitolite, jq and curl, and Python's venv, without which a test each is left out, mmdebstrap, for the test of the packages, and on Debian what make containers-test
# needs, and what the arguments name: chromium, without which a test is left out. It never uses sudo.
set -euo pipefail

postgres_image=postgres:17-alpine
emulator_image=gcr.io/cloud-spanner-emulator/emulator:1.5.43 # as in test/dbtest/container.go; PostgreSQL's in test/dbtest/local
emulator_package=google-cloud-cli-spanner-emulator

# The have_* functions look in the places where test/dbtest looks.
any_executable() {
	local path
	for path; do
		if [[ -x $path ]]; then return 0; fi
	done
	return 1
}

have_postgres() {
	[[ -n ${REFDB_TEST_POSTGRES-} ]] || command -v initdb >/dev/null ||
		any_executable /usr/lib/postgresql/*/bin/initdb "$(pg_config --bindir 2>/dev/null)/initdb"
}

have_pgbouncer() {
	command -v pgbouncer >/dev/null || any_executable /usr/sbin/pgbouncer
}

have_emulator() {
	[[ -n ${SPANNER_EMULATOR_HOST-} ]] || command -v emulator_main >/dev/null && return
	local root roots=(/usr/lib/google-cloud-sdk /usr/share/google-cloud-sdk /snap/google-cloud-cli/current
		/snap/google-cloud-sdk/current /opt/google-cloud-sdk /opt/homebrew/share/google-cloud-sdk ~/google-cloud-sdk)
	for root in "${CLOUDSDK_ROOT_DIR-}" "${roots[@]}"; do
		if [[ -n $root && -x $root/bin/cloud_spanner_emulator/emulator_main ]]; then return 0; fi
	done
	root=$(gcloud info --format='value(installation.sdk_root)' 2>/dev/null) || return 1
	[[ -x $root/bin/cloud_spanner_emulator/emulator_main ]]
}

have_compiler() {
	command -v "${CC:-gcc}" >/dev/null
}

have_promtool() {
	command -v promtool >/dev/null
}

have_jq() {
	command -v jq >/dev/null && command -v curl >/dev/null
}

have_gitolite() {
	command -v gitolite >/dev/null
}

have_podman() {
	local program
	for program in podman buildah runc podman-compose aardvark-dns; do
		command -v "$program" >/dev/null || any_executable "/usr/lib/podman/$program" || return 1
	done
}

have_python() {
	"${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null
}

have_chromium() {
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null
}

have_mmdebstrap() {
	command -v mmdebstrap >/dev/null && command -v bsdtar >/dev/null && command -v ip >/dev/null
}

may_install() {
	[[ $EUID -eq 0 ]] && command -v apt-get >/dev/null
}

# As internal/testserver/container.go.
have_engine() {
	for engine in docker podman; do
		if timeout 20 "$engine" info >/dev/null 2>&1; then return; fi
	done
	return 1
}

have_image() {
	"$engine" image inspect "$1" >/dev/null 2>&1
}

things=(postgres pgbouncer emulator compiler promtool)
if may_install; then things+=(gitolite jq python mmdebstrap); fi
if may_install && grep -q '^ID=debian$' /etc/os-release; then things+=(podman "$@"); fi
missing=()
for thing in "${things[@]}"; do
	"have_$thing" || missing+=("$thing")
done
if [[ ${#missing[@]} -gt 0 ]] && have_engine; then
	rest=()
	for thing in "${missing[@]}"; do
		case $thing in
		postgres) image=$postgres_image ;;
		emulator) image=$emulator_image ;;
		*) rest+=("$thing") && continue ;;
		esac
		if ! have_image "$image" && ! "$engine" pull --quiet "$image"; then rest+=("$thing"); fi
	done
	missing=("${rest[@]+"${rest[@]}"}")
fi
if [[ ${#missing[@]} -eq 0 ]]; then
	echo "deps: PostgreSQL, PgBouncer, the Spanner emulator, a C compiler and promtool are there"
	exit 0
fi

packages=()
promtool= # the package that has it
for thing in "${missing[@]}"; do
	case $thing in
	postgres) packages+=(postgresql) ;;
	pgbouncer) packages+=(pgbouncer) ;;
	emulator) packages+=("$emulator_package") ;;
	compiler) packages+=(gcc libc6-dev) ;;
	promtool) promtool=prometheus ;;
	gitolite) packages+=(gitolite3) ;;
	jq) packages+=(jq curl) ;;
	python) packages+=(python3-venv) ;;
	podman) packages+=(podman buildah runc podman-compose netavark aardvark-dns iptables) ;;
	chromium) packages+=(chromium) ;;
	mmdebstrap) packages+=(mmdebstrap libarchive-tools iproute2 debian-archive-keyring) ;; # Ubuntu lacks the keys
	esac
done
if ! may_install; then
	cat >&2 <<-MESSAGE
		deps: missing: ${missing[*]}
		Install them as root (Debian, Ubuntu: make deps as root, which runs apt-get install ${packages[*]-} ${promtool};
		macOS: brew install postgresql pgbouncer prometheus; gcloud components install cloud-spanner-emulator),
		or start a container engine, or set REFDB_TEST_POSTGRES and SPANNER_EMULATOR_HOST to the addresses of servers.
	MESSAGE
	exit 1
fi

install() {
	DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends "$@"
}

# The package starts a server, which no test needs.
install_promtool() {
	local dir
	dir=$(mktemp -d)
	(cd "$dir" && apt-get download --quiet "$promtool" && dpkg-deb --fsys-tarfile "$promtool"_*.deb | tar -x ./usr/bin/promtool)
	command install -m 755 "$dir/usr/bin/promtool" /usr/local/bin/promtool
	rm -r "$dir"
}

echo "deps: installing ${packages[*]-} ${promtool:+promtool}"
apt-get update --quiet
if [[ " ${packages[*]} " == *" $emulator_package "* ]] && ! apt-cache show "$emulator_package" >/dev/null 2>&1; then
	install ca-certificates curl
	key=/usr/share/keyrings/cloud.google.asc
	curl --fail --silent --show-error --location --output "$key" https://packages.cloud.google.com/apt/doc/apt-key.gpg
	echo "deb [signed-by=$key] https://packages.cloud.google.com/apt cloud-sdk main" >/etc/apt/sources.list.d/google-cloud-sdk.list
	apt-get update --quiet
fi
if [[ ${#packages[@]} -gt 0 ]]; then install "${packages[@]}"; fi
if [[ -n $promtool ]]; then install_promtool; fi
