title "1. A Gerrit is put under guard, as docs/GERRIT.md says"
refdbctl migrate up >/dev/null
init_gerrit_eu() { mkdir -p "$work/eu" && init_gerrit eu; }
check "a Gerrit of its own, without the guard" init_gerrit_eu
configure_gerrit eu
configure_daemon eu
start_daemon eu
check "its repositories are put under guard" site eu enable --all --new
mkdir -p "$work/eu/gerrit/lib"
[[ ! $war ]] || cp "$jar" "$work/eu/gerrit/lib/"
documented sh | sed "s#/run/refdb/site.sock#$work/eu/refdb.sock#" >"$work/install.sh"
configure_guard() { (cd "$work/eu/gerrit" && bash -e "$work/install.sh"); }
check "Gerrit is configured with the commands of the page" configure_guard
check "all of them" eval '[[ $(wc -l <"$work/install.sh") -eq 6 ]]'
start_gerrit eu
check "it says that it is guarded" grep -q 'refdb: guarded by the daemon of the site eu' "$work/eu/gerrit.log"
