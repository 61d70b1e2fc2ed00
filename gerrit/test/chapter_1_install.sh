title "1. A Gerrit is put under guard, as docs/GERRIT.md says"
refdbctl migrate up >/dev/null
init_gerrit_eu() { mkdir -p "$work/eu" && init_gerrit eu; }
check "a Gerrit of its own, without the guard" init_gerrit_eu
configure_gerrit eu
configure_daemon eu
start_daemon eu
check "its repositories are put under guard" site eu enable --all --new
mkdir -p "$work/eu/gerrit/lib"
cp "$jar" "$work/eu/gerrit/lib/"
gerrit_config eu gerrit.installDbModule com.github.globalrefdb.gerrit.DbModule
gerrit_config eu --add gerrit.installModule com.github.globalrefdb.gerrit.SysModule
git config -f "$work/eu/gerrit/etc/jgit.config" core.fsyncObjectFiles true
git config -f "$work/eu/gerrit/etc/jgit.config" core.fsyncRefFiles true
gerrit_config eu refdb.socket "$work/eu/refdb.sock"
start_gerrit eu
check "it says that it is guarded" grep -q 'refdb: guarded by the daemon of the site eu' "$work/eu/gerrit.log"
