title "5. Gerrit starts only under guard, and says why not"
stop_gerrit eu
kill_daemon eu TERM
check "without the daemon" fails_to_start eu 'refdb: Gerrit does not start without the guard: the site daemon does not answer'
start_daemon eu
cp -r "$(root eu)" "$work/eu/gerrit/other"
gerrit_config eu gerrit.basePath other
check "with other repositories than the site's" fails_to_start eu 'rejected the session (root)'
gerrit_config eu gerrit.basePath git
gerrit_config eu --unset gerrit.installDbModule
check "without the guard's module of repositories" fails_to_start eu 'not by the guard: set gerrit.installDbModule'
gerrit_config eu gerrit.installDbModule com.github.globalrefdb.gerrit.DbModule

git config -f "$work/eu/gerrit/etc/jgit.config" core.fsyncRefFiles false
check "without a disk that has what JGit has written" fails_to_start eu 'jgit.config core.fsyncRefFiles true'
git config -f "$work/eu/gerrit/etc/jgit.config" core.fsyncRefFiles true

offline() { "${gerrit_program[@]}" "$1" -d "$work/eu/gerrit" "${@:2}" >"$work/eu/$1.log" 2>&1; }
check "init runs beside the daemon" offline init --batch --no-auto-start
check "so does reindex" offline reindex --index projects
kill_daemon eu TERM
check "and both without it: they move nothing" offline reindex --index projects
check "init, too" offline init --batch --no-auto-start
start_daemon eu
start_gerrit eu
check "the database has what the repositories have" eval 'same eu All-Projects && same eu All-Users && same eu team/app'
