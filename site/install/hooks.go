package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// deciding are the hooks by which the guard takes part in pushes. Earlier versions installed
// refdb-hook in their places.
var deciding = hookdir.Names[:3]

// unsupported are git's hooks that the site's directory lacks, so git does not run them in a
// guarded repository. A hook push-to-checkout that only ran the repository's own hook would turn
// off receive.denyCurrentBranch = updateInstead.
var unsupported = []string{
	"applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg", "commit-msg", "post-commit",
	"pre-rebase", "post-checkout", "post-merge", "pre-push", "push-to-checkout", "pre-auto-gc", "post-rewrite", "sendemail-validate",
	"fsmonitor-watchman", "p4-changelist", "p4-prepare-changelist", "p4-post-changelist", "p4-pre-submit", "post-index-change",
}

// Hooks are a repository's own hooks and those of its site.
type Hooks struct {
	Site hookdir.Dir
	// Own is the directory whose hooks git would run if the repository were not guarded. refdb-hook
	// runs them from there.
	Own         string
	repo        *gitrepo.Repo
	variables   Variables
	gitPrograms []string
}

// HooksOf returns the hooks of a repository with these settings.
func HooksOf(ctx context.Context, c *config.Config, repo *gitrepo.Repo, v Variables) (Hooks, error) {
	h := Hooks{Site: hookdir.Dir(c.Hooks), Own: filepath.Join(repo.Dir(), "hooks"), repo: repo, variables: v, gitPrograms: c.GitPrograms}
	if _, known := v.Get(setKey); known || h.leadsToASite() {
		if target, err := os.Readlink(h.ownLink()); err == nil {
			if h.Own = target; !filepath.IsAbs(target) {
				h.Own = filepath.Join(repo.Dir(), "refdb", target)
			}
			return h, nil
		}
		for _, one := range v.Ordered {
			if one.Name == "core.hookspath" && one.Value != h.Site.HooksPath() && filepath.IsAbs(one.Value) {
				h.Own = one.Value
			}
		}
		return h, nil
	}
	if !v.All["core.hookspath"] {
		return h, nil
	}
	out, err := repo.Command(ctx, "config", "--type=path", "--get", "core.hooksPath").Output()
	if err != nil {
		return h, fmt.Errorf("reading core.hooksPath: %w", gitrepo.Failure(ctx, err))
	}
	path := strings.TrimSuffix(string(out), "\n")
	if !filepath.IsAbs(path) {
		return h, fmt.Errorf("core.hooksPath is %q, a relative path: git resolves it from its working directory, and mostly finds no hooks; unset it, "+
			"or set it to %s in the repository's configuration", path, h.Own)
	}
	h.Own = filepath.Clean(path)
	return h, nil
}

// readHooks returns the hooks of a repository according to its present settings.
func readHooks(ctx context.Context, c *config.Config, repo *gitrepo.Repo) (Hooks, error) {
	v, err := ReadVariables(ctx, repo)
	if err != nil {
		return Hooks{}, err
	}
	return HooksOf(ctx, c, repo, v)
}

// HasOwnHook reports whether the guarded repository at dir has an own hook of that name that
// refdb-hook runs.
func HasOwnHook(dir, name string) bool {
	own := filepath.Join(dir, wire.OwnHooks)
	if _, err := os.Lstat(own); err != nil {
		own = filepath.Join(dir, "hooks")
	}
	return unix.Access(filepath.Join(own, name), unix.X_OK) == nil
}

// leadsToASite reports whether the repository's configuration leads git to a site's hooks, possibly
// at another path than this site's.
func (h Hooks) leadsToASite() bool {
	return slices.ContainsFunc(h.variables.Local["include.path"], h.isSites)
}

func (h Hooks) ownLink() string { return filepath.Join(h.repo.Dir(), wire.OwnHooks) }

// refuse returns an error if the repository has hooks that git would no longer run, or settings by
// which git would not run the site's hooks.
func (h Hooks) refuse() error {
	if one, fault := h.overruled(); one != nil {
		return errors.New(one.Name + " = " + one.Value + ", in " + one.File + ", " + fault)
	}
	if others := h.others(); len(others) > 0 {
		return fmt.Errorf("%s would not be run in a guarded repository, which runs %s only: make it not executable, or remove it",
			filepath.Join(h.Own, others[0]), strings.Join(hookdir.Names[:], ", "))
	}
	return nil
}

// overruled returns a setting of a work tree that takes precedence over the repository's, and the
// resulting fault; nil if there is none.
func (h Hooks) overruled() (one *Variable, fault string) {
	for _, v := range h.variables.OfWorkTrees {
		remove := "remove it: git config --file " + v.File + " --unset-all " + v.Name
		switch {
		case v.Name == "core.hookspath" && v.Value != h.Site.HooksPath():
			return &v, "takes precedence over the repository's: git does not run the site's hooks in that work tree, nor for pushes into it; " + remove
		case v.hidesRefs() && strings.HasPrefix(v.Value, "!"):
			return &v, "shows refs to pushes into that work tree even if the site's hooks are gone: " + remove
		}
	}
	return nil, ""
}

// others returns the names of executable hooks in the repository that git does not run.
func (h Hooks) others() (names []string) {
	for _, name := range unsupported {
		path := filepath.Join(h.Own, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && unix.Access(path, unix.X_OK) == nil {
			names = append(names, name)
		}
	}
	return names
}

// inside returns the target of a relative link from a directory to a path in the repository; the
// path itself if it is outside of the repository.
func (h Hooks) inside(from, path string) (target string, is bool) {
	if below, err := filepath.Rel(h.repo.Dir(), path); err == nil && filepath.IsLocal(below) {
		if target, err := filepath.Rel(from, path); err == nil {
			return target, true
		}
	}
	return path, false
}

// shared reports whether the directory of the repository's own hooks is outside of the repository,
// so that other repositories may use it, too. Inside the repository it may be a link.
func (h Hooks) shared() bool {
	dir, err := filepath.EvalSymlinks(h.repo.Dir())
	if err != nil {
		return true
	}
	own, err := filepath.EvalSymlinks(h.Own)
	if err != nil {
		return true
	}
	below, err := filepath.Rel(dir, own)
	return err != nil || !filepath.IsLocal(below)
}

// place records where the repository's own hooks are, and puts relays to the site's hooks in their
// places, for git processes that are already running: git reads core.hooksPath when it starts. If
// such processes may still not ask the daemon, or own hooks have been displaced, [Hooks.finish] has
// work left, which the directory [wire.ChainedHooks] records.
func (h Hooks) place() error {
	link := h.ownLink()
	if err := os.Mkdir(filepath.Dir(link), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	release, err := h.alone()
	if err != nil {
		return err
	}
	defer release()
	target, inside := h.inside(filepath.Dir(link), h.Own)
	if err := placeLink(link, target); err != nil {
		return err
	}
	covered := h.isLed()
	for i, name := range deciding {
		path := filepath.Join(h.Own, name)
		ours := inside && isOurs(path)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) && i == 0 && !h.shared() {
			ours = true
		}
		if !ours {
			continue
		}
		_, err := os.Lstat(path + wire.Chained)
		if i > 0 || err == nil {
			if err := h.leaveUnfinished(); err != nil {
				return err
			}
		}
		if err == nil {
			chained := filepath.Join(h.unfinished(), name)
			target, _ := h.inside(filepath.Dir(chained), path+wire.Chained)
			if err := placeLink(chained, target); err != nil {
				return err
			}
		}
		if err := h.placeRelay(name); err != nil {
			return err
		}
		covered = covered || i == 0 && h.looksIn(h.Own)
	}
	if covered {
		return nil
	}
	return h.leaveUnfinished()
}

// isLed reports whether git runs the site's hooks in the repository.
func (h Hooks) isLed() bool { return h.variables.Last(hooksPathKey) == h.Site.HooksPath() }

// looksIn reports whether a git process that is already running takes its hooks from that
// directory.
func (h Hooks) looksIn(dir string) bool {
	path := h.variables.Last(hooksPathKey)
	return path == dir || path == "" && dir == filepath.Join(h.repo.Dir(), "hooks")
}

// unfinished is the path of a directory that exists until all git processes from before the
// installation of the site's hooks have ended.
func (h Hooks) unfinished() string { return filepath.Join(h.repo.Dir(), wire.ChainedHooks) }

func (h Hooks) leaveUnfinished() error { return durable.MkdirAll(h.unfinished(), 0o755) }

// placeRelay replaces an own hook by the script that starts the site's hook. If there was a hook,
// there is one at every moment.
func (h Hooks) placeRelay(name string) error {
	path := filepath.Join(h.Own, name)
	if have, err := os.ReadFile(path); err == nil && string(have) == h.relay(name) {
		return nil
	}
	return durable.WriteFile(path, []byte(h.relay(name)), 0o755)
}

// relay returns the script that starts the site's hook.
func (h Hooks) relay(name string) string {
	path := strings.ReplaceAll(filepath.Join(h.Site.HooksPath(), name), "'", `'\''`)
	return wire.Relay + "for pushes that began before core.hooksPath led to the site's hooks. `refdbctl site disable` removes it.\nexec '" + path + "' \"$@\"\n"
}

// unplaced returns the paths of refdb-hook, or relays to it, in the places of the repository's own
// hooks.
func (h Hooks) unplaced() (paths []string) {
	if _, inside := h.inside(h.repo.Dir(), h.Own); !inside {
		return nil
	}
	for i, name := range deciding {
		path := filepath.Join(h.Own, name)
		_, err := os.Lstat(path + wire.Chained)
		if (i > 0 || err == nil) && isOurs(path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// finish waits, for at most patience, until all git processes that started before now have ended,
// and then restores the repository's own hooks to their places. It returns true at once if nothing
// is left to finish. If it returns false it has to be called again.
func (h Hooks) finish(ctx context.Context, patience time.Duration) (finished bool, err error) {
	if _, err := os.Lstat(h.unfinished()); errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if ended, err := h.awaitGits(ctx, patience); err != nil || !ended {
		return false, err
	}
	release, err := h.alone()
	if err != nil {
		return false, err
	}
	defer release()
	for _, path := range h.unplaced() {
		if _, err := putBack(path); err != nil {
			return false, err
		}
	}
	return true, os.RemoveAll(h.unfinished())
}

// giveBack restores the repository's own hooks to their places, where git runs them again, and
// removes the links to them.
func (h Hooks) giveBack(done func(Step)) error {
	release, err := h.alone()
	if err != nil {
		return err
	}
	defer release()
	for _, name := range deciding {
		did, err := putBack(filepath.Join(h.Own, name))
		if err != nil {
			return fmt.Errorf("removing the hook %s: %w", name, err)
		}
		done(Step{name, did})
	}
	return errors.Join(os.RemoveAll(h.ownLink()), os.RemoveAll(h.unfinished()))
}

// alone excludes other processes that change the repository's hooks until release is called.
func (h Hooks) alone() (release func(), err error) {
	dir, err := os.Open(filepath.Join(h.repo.Dir(), "refdb"))
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil // no hook was ever moved
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return func() { dir.Close() }, nil
}

// RestoreShown makes sure that the site's hooks have the file by which a guarded repository shows
// refs to pushes.
func RestoreShown(ctx context.Context, c *config.Config, r config.Repository) error {
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return err
	}
	h, err := readHooks(ctx, c, repo)
	if err != nil || !h.leadsToASite() {
		return err
	}
	return h.Site.ProvideConfig(ctx, h.hidings().before)
}

// Finish restores the own hooks of a guarded repository to their places, unless a git process is
// still running that started before. In that case it has to be called again.
func Finish(ctx context.Context, c *config.Config, r config.Repository) error {
	repo, err := openOwn(ctx, r)
	if err != nil {
		return err
	}
	h, err := readHooks(ctx, c, repo)
	if err != nil || !h.leadsToASite() {
		return err
	}
	_, err = h.finish(ctx, gitrepo.LockPatience)
	return err
}

// awaitGits waits until all git processes that started before now on the repository have ended, and
// reports whether they have.
func (h Hooks) awaitGits(ctx context.Context, patience time.Duration) (ended bool, err error) {
	ended, unsure, err := pusher.AwaitGits(ctx, h.gitPrograms, h.repo.Dir(), time.Now().Add(patience))
	return ended && !unsure, err
}

// putBack removes refdb-hook or its relay at path, and restores the hook that was there before.
func putBack(path string) (did string, err error) {
	switch _, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return "is not there", nil
	case err != nil:
		return "", err
	case !isOurs(path):
		return "is not ours: left alone", nil
	}
	if _, err := os.Lstat(path + wire.Chained); err == nil {
		return "removed; the one from before is back", errors.Join(os.Rename(path+wire.Chained, path), durable.SyncDir(filepath.Dir(path)))
	}
	return "removed", errors.Join(os.Remove(path), durable.SyncDir(filepath.Dir(path)))
}

// isOurs reports whether the file is refdb-hook, or the script that starts it.
func isOurs(path string) bool { return hookdir.IsProgram(path) || isRelay(path) }

func isRelay(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	begins := make([]byte, len(wire.Relay))
	n, _ := f.Read(begins)
	return string(begins[:n]) == wire.Relay
}

// placeLink makes path a link to target. If there was a link, there is one at every moment.
func placeLink(path, target string) error {
	if have, err := os.Readlink(path); err == nil && have == target {
		return nil
	}
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}

// A HookFault is a defect of a repository's hooks.
type HookFault struct {
	Code, Subject, Detail string
	ByHand                bool // [RepairHooks] can't repair it
}

// Codes of hook faults of a repository, besides those of package hookdir. They don't change:
// monitoring may rely on them.
const (
	HooksPath = "hooks-path" // git looks for hooks elsewhere
	HookOther = "hook-other" // git does not run it in a guarded repository
	settingOf = "setting"    // a git setting is wrong
)

// Faults returns the defects of the hooks of a repository that should be guarded.
func (h Hooks) Faults() (faults []HookFault) {
	if h.isOfEarlierForm() {
		for _, name := range deciding {
			if path := filepath.Join(h.Own, name); isOurs(path) {
				faults = append(faults, HookFault{hookdir.Outdated, path, "it is in the place of one of the repository's own hooks, as in earlier versions: run refdbctl site enable", false})
			}
		}
		return faults
	}
	if one, fault := h.overruled(); one != nil {
		faults = append(faults, HookFault{HooksPath, one.File, one.Name + " = " + one.Value + " " + fault, true})
	}
	if !h.leadsToASite() {
		return append(faults, HookFault{hookdir.Missing, "include.path", "the configuration should include " + h.Site.Config(h.hidings().hidden()) +
			": git does not run the site's hooks, and pushes are refused, or not guarded", false})
	}
	if _, err := os.Stat(h.Site.Config(nil)); err != nil {
		return faults // a fault of the site's hooks, reported elsewhere
	}
	if detail := h.Site.NotEnterable(h.repo.Dir()); detail != "" {
		faults = append(faults, HookFault{hookdir.NotExecutable, string(h.Site), detail, true})
	}
	if _, err := os.Readlink(h.ownLink()); err != nil {
		faults = append(faults, HookFault{HooksPath, h.ownLink(), "the link to the repository's own hooks is missing: the hooks in " + h.Own + " are run", false})
	}
	switch detail := h.opened(); {
	case detail != "":
		faults = append(faults, HookFault{settingOf, closedKey, detail, false})
	case !h.isLed():
		faults = append(faults, HookFault{HooksPath, h.variables.Last(hooksPathKey), "core.hooksPath should be " + h.Site.HooksPath() + ": git does not run the site's hooks, and pushes are not guarded", false})
	}
	for _, name := range h.others() {
		faults = append(faults, HookFault{HookOther, filepath.Join(h.Own, name), "git does not run this hook in a guarded repository: make it not executable, or remove it", true})
	}
	unplaced := h.unplaced()
	for _, path := range unplaced {
		faults = append(faults, HookFault{hookdir.Outdated, path, "it is in the place of one of the repository's own hooks until all git processes from before `site enable` have ended: run `site enable` again", false})
	}
	if _, err := os.Lstat(h.unfinished()); err == nil && len(unplaced) == 0 {
		faults = append(faults, HookFault{hookdir.Outdated, h.unfinished(), "git processes from before `site enable` may still run, and don't ask the daemon: run `site enable` again", false})
	}
	return faults
}

// isOfEarlierForm reports whether refdb-hook is in the places of the repository's own hooks, as in
// earlier versions.
func (h Hooks) isOfEarlierForm() bool {
	return !h.leadsToASite() && slices.ContainsFunc(deciding, func(name string) bool { return hookdir.IsProgram(filepath.Join(h.Own, name)) })
}
