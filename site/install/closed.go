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

// Git runs no hook at all if it does not find the directory of the site's hooks. So the repository's configuration hides all refs from
// pushes, and includes a file in the directory that shows them again, but for what was hidden before. Without the directory pushes are
// refused, and reading goes on.
const (
	closedKey = "receive.hideRefs"
	// allRefs is all refs for git, which leaves slashes at the end out. Nobody else writes it like that.
	allRefs = "refs//"
	closed  = "[receive]\n\thideRefs = " + allRefs + "\n"
)

// closing is the part of a repository's configuration that closes it to pushes while the site's hooks are gone. The order matters.
func closing(file string) string {
	quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(file) + `"`
	return closed + "[include]\n\tpath = " + quoted + "\n"
}

// hidings are the settings that hide refs from pushes.
type hidings struct {
	closes bool     // our own is there
	before []string // what git reads before the site's file shows all refs
	after  []Variable
	// opens is one that shows refs to pushes, whether the site's file is there or not.
	opens *Variable
}

// hidings finds the settings that hide refs from pushes, in the order in which git reads them.
func (h Hooks) hidings() (found hidings) {
	set, _ := h.variables.Get(h.setting().setKey())
	shown := false // by the site's file
	for _, v := range h.variables.Ordered {
		switch {
		case v.Name != "transfer.hiderefs" && v.Name != "receive.hiderefs" || v.File == "":
		case hookdir.IsConfig(v.File, h.Site.HooksPath()), hookdir.IsConfig(v.File, set):
			shown = true
			continue
		case v.Value == allRefs:
			found.closes = true
		case slices.Contains(hookdir.Hidden[:], v.Value): // the site's file hides these
		case shown:
			found.after = append(found.after, v)
		default:
			found.before = append(found.before, v.Value)
		}
		if found.closes && v.File != "" && strings.HasSuffix(v.Name, ".hiderefs") && strings.HasPrefix(v.Value, "!") {
			found.opens = &v
		}
	}
	return found
}

// hidden returns what the site's file has to hide again once it is included at the end of the repository's configuration.
func (f hidings) hidden() []string {
	all := slices.Clone(f.before)
	for _, v := range f.after {
		if !isReadLast(v) {
			all = append(all, v.Value)
		}
	}
	return all
}

// isReadLast reports whether git reads a setting after the repository's configuration, wherever that ends.
func isReadLast(v Variable) bool { return filepath.Base(v.File) == "config.worktree" }

// opened returns what is wrong with how the repository is closed to pushes while the site's hooks are gone; "" if nothing is. ByHand says that
// to write our part of the configuration anew does not help.
func (h Hooks) opened() (detail string, byHand bool) {
	found := h.hidings()
	file := h.Site.Config(found.before)
	switch {
	case !found.closes:
		return "it does not hide all refs from pushes, which the site's hooks show again: if these are gone, pushes are accepted that nobody has looked at", false
	case found.opens != nil:
		return fmt.Sprintf("%s = %s, in %s, shows refs to pushes even if the site's hooks are gone: remove it, or write it before our own",
			found.opens.Name, found.opens.Value, found.opens.File), isReadLast(*found.opens)
	case !slices.Contains(h.variables.Local["include.path"], file):
		return "the configuration does not include " + file + ": pushes are refused, or may move refs that other settings hide", false
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) && len(found.before) > 0 { // else it is the site's that is not whole
		return file + " is gone: pushes are refused", false
	}
	return "", false
}

// lead lets a repository's configuration lead git to the site's hooks, and closes the repository to pushes without them.
func (c GitConfig) lead(ctx context.Context, h Hooks) (did string, err error) {
	did, err = c.Apply(ctx, h.variables, h.setting())
	if err != nil {
		return "", err
	}
	if detail, _ := h.opened(); detail == "" {
		return did, nil
	}
	if err := c.unclose(ctx, h); err != nil {
		return "", err
	}
	text, err := os.ReadFile(c.File)
	if err != nil {
		return "", err
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	return did, durable.Rewrite(c.File, append(text, closing(h.Site.Config(h.hidings().hidden()))...))
}

// unlead undoes what lead did.
func (c GitConfig) unlead(ctx context.Context, h Hooks) (did string, err error) {
	if err := c.unclose(ctx, h); err != nil {
		return "", err
	}
	return c.restore(ctx, h.variables, h.setting())
}

// unclose removes what closes a repository to pushes.
func (c GitConfig) unclose(ctx context.Context, h Hooks) error {
	if err := c.unsetValue(ctx, closedKey, allRefs); err != nil {
		return err
	}
	set, _ := h.variables.Get(h.setting().setKey())
	for _, file := range slices.Compact(slices.Sorted(slices.Values(h.variables.Local["include.path"]))) {
		if hookdir.IsConfig(file, h.Site.HooksPath()) || hookdir.IsConfig(file, set) {
			if err := c.unsetValue(ctx, "include.path", file); err != nil {
				return err
			}
		}
	}
	return nil
}

// unsetValue removes a value of a key, if the key has it.
func (c GitConfig) unsetValue(ctx context.Context, key, value string) error {
	err := c.run(ctx, key, "--fixed-value", "--unset-all", key, value)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 5 { // it has not
		return nil
	}
	return err
}

// rewrite changes the repository's configuration in one step: git reads it as it was before, or as it is afterwards.
func rewrite(ctx context.Context, repo *gitrepo.Repo, change func(GitConfig) error) error {
	path, err := filepath.EvalSymlinks(filepath.Join(repo.Dir(), "config"))
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	lock := path + ".lock" // git's own
	f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return fmt.Errorf("changing git's settings: %w: another git changes them, or one that did was killed", err)
	}
	defer os.Remove(lock) // unless it has become the configuration
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(info.Mode().Perm()), f.Close()); err != nil {
		return err
	}
	if err := change(GitConfig{Repo: repo, File: lock}); err != nil {
		return err
	}
	if changed, err := os.ReadFile(lock); err != nil || string(changed) == string(text) {
		return err
	}
	if err := durable.SyncFile(lock); err != nil {
		return err
	}
	return errors.Join(os.Rename(lock, path), durable.SyncDir(filepath.Dir(path)))
}
