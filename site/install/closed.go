package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// A guarded repository's configuration hides all refs from pushes. At its end it includes a file in
// the directory of the site's hooks that shows the refs again, except for those that were hidden
// before, and leads git to the hooks. Git takes the last value, so no other setting of the
// repository leads it past the hooks. Without the directory git would run no hook at all, but
// pushes are refused, while reading still works.
const (
	hooksPathKey = "core.hooksPath"
	// setKey records the path of the site's hooks.
	setKey    = "refdb.core.hooksPath.set"
	closedKey = "receive.hideRefs"
	// allRefs means all refs to git, which ignores trailing slashes. No other program writes it
	// like that.
	allRefs = "refs//"
	closed  = "[receive]\n\thideRefs = " + allRefs + "\n"
)

// hidings are the settings that hide refs from pushes.
type hidings struct {
	closes bool     // our own setting is there
	before []string // what git reads before the site's file shows all refs
	after  []string
	// opens is a setting that shows refs to pushes whether the site's file exists or not.
	opens *Variable
}

// hidings returns the settings that hide refs from pushes, in the order in which git reads them.
func (h Hooks) hidings() (found hidings) {
	shown := false // by the site's file
	for _, v := range h.variables.Ordered {
		switch {
		case !v.hidesRefs() || v.File == "":
			continue
		case h.isSites(v.File):
			shown = true
			continue
		case v.Value == allRefs:
			found.closes = true
		case slices.Contains(hookdir.Hidden[:], v.Value): // the site's file hides these
		case shown:
			found.after = append(found.after, v.Value)
		default:
			found.before = append(found.before, v.Value)
		}
		if found.closes && strings.HasPrefix(v.Value, "!") {
			found.opens = &v
		}
	}
	return found
}

// hidden returns the refs that the site's file has to hide again once it is included at the end of
// the repository's configuration.
func (f hidings) hidden() []string {
	return slices.Concat(f.before, f.after)
}

// opened returns the reason why the repository would accept pushes, or other settings would count,
// while the site's hooks are gone; "" if there is none.
func (h Hooks) opened() string {
	found := h.hidings()
	file := h.Site.Config(found.before)
	switch {
	case !found.closes:
		return "it does not hide all refs from pushes (the site's hooks show them again): if the hooks are gone, pushes are accepted unchecked"
	case found.opens != nil:
		return fmt.Sprintf("%s = %s, in %s, shows refs to pushes even if the site's hooks are gone: remove it, or move it before ours",
			found.opens.Name, found.opens.Value, found.opens.File)
	case !slices.Contains(h.variables.Local["include.path"], file):
		return "the configuration does not include " + file + ": pushes are refused, or may move refs that other settings hide"
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return file + " is gone: pushes are refused"
	}
	return ""
}

// lead changes a repository's configuration so that it leads git to the site's hooks, and refuses
// pushes without them.
func (c GitConfig) lead(ctx context.Context, h Hooks) (did string, err error) {
	if h.isLed() && h.opened() == "" {
		return "is " + h.Site.HooksPath(), nil
	}
	if _, err := c.unlead(ctx, h); err != nil {
		return "", err
	}
	if err := c.Set(ctx, setKey, h.Site.HooksPath()); err != nil {
		return "", err
	}
	text, err := os.ReadFile(c.File)
	if err != nil {
		return "", err
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	return "set to " + h.Site.HooksPath(), os.WriteFile(c.File, append(text, closed+h.Site.Including(h.hidings().hidden())...), 0)
}

// unlead reverses lead.
func (c GitConfig) unlead(ctx context.Context, h Hooks) (did string, err error) {
	if err := c.unsetValue(ctx, closedKey, allRefs); err != nil {
		return "", err
	}
	did = "was not changed"
	for _, file := range slices.Compact(slices.Sorted(slices.Values(h.variables.Local["include.path"]))) {
		if h.isSites(file) {
			did = "no longer leads to " + filepath.Dir(file)
			if err := c.unsetValue(ctx, "include.path", file); err != nil {
				return "", err
			}
		}
	}
	// The setting may be in the repository's configuration itself.
	_, err = c.restore(ctx, h.variables, Setting{Key: hooksPathKey})
	return did, err
}

// isSites reports whether file is one of those by which a configuration leads git to the site's
// hooks.
func (h Hooks) isSites(file string) bool {
	set, _ := h.variables.Get(setKey)
	return hookdir.IsConfig(file, h.Site.HooksPath()) || hookdir.IsConfig(file, set)
}

// unsetValue removes a value of a key, if the key has the value.
func (c GitConfig) unsetValue(ctx context.Context, key, value string) error {
	err := c.run(ctx, key, "--fixed-value", "--unset-all", key, value)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 5 { // the key does not have the value
		return nil
	}
	return err
}

// rewrite changes the repository's configuration in one step: git reads either the old or the new
// configuration.
func rewrite(ctx context.Context, repo *gitrepo.Repo, change func(GitConfig) error) error {
	path, err := filepath.EvalSymlinks(filepath.Join(repo.Dir(), "config"))
	if err != nil {
		return err
	}
	lock := path + ".lock" // git's own
	held, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("changing git's settings: %w: %s", err, unlockConfig(repo))
	}
	defer os.Remove(lock)
	defer held.Close()
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	// The lock itself is not written to: a process that takes it for a killed git's may remove it.
	changed := path + ".refdb"
	for _, left := range []string{changed, changed + ".lock"} { // by a crash
		if err := os.Remove(left); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	defer os.Remove(changed)
	if err := errors.Join(os.WriteFile(changed, text, 0o600), os.Chmod(changed, info.Mode().Perm())); err != nil {
		return err
	}
	if err := change(GitConfig{Repo: repo, File: changed}); err != nil {
		return err
	}
	if now, err := os.ReadFile(changed); err != nil || string(now) == string(text) {
		return err
	}
	if err := durable.SyncFile(changed); err != nil {
		return err
	}
	mine, err := held.Stat()
	if err != nil {
		return err
	}
	if is, err := os.Lstat(lock); err != nil || !os.SameFile(is, mine) {
		return fmt.Errorf("changing git's settings: %s was removed meanwhile: run the command again", lock)
	}
	return errors.Join(os.Rename(changed, path), durable.SyncDir(filepath.Dir(path)))
}
