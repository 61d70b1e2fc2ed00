package install

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// HookNames are the hooks that guard a repository. The first decides, the second explains, and the
// third reads what the second needs.
var HookNames = [...]string{"reference-transaction", "update", "pre-receive"}

// without returns the effect if git doesn't run our hook.
func without(name string) string {
	switch name {
	case "update":
		return "pushes are refused as a whole, and over HTTP without the reason"
	case "pre-receive":
		return "pushes of many refs are slow"
	}
	return "pushes are not guarded"
}

const (
	// hookProgram is what the build information of our hook names.
	hookProgram = "github.com/globalrefdb/globalrefdb/cmd/refdb-hook"
	// chained is added to the name of a hook that was there before ours. Our hook runs that one first.
	chained = ".chained"
)

// Codes of what may be wrong with a hook. They don't change: monitoring may rely on them.
const (
	HookMissing       = "hook-missing"        // pushes are not guarded, or slow
	HookForeign       = "hook-foreign"        // another program is in its place
	HookNotExecutable = "hook-not-executable" // git ignores it
	HookOutdated      = "hook-outdated"       // it is of another version
)

// Hooks are the hooks of a repository.
type Hooks struct {
	Dir string
	// program is what ours should hold; nil if it isn't known.
	program []byte
	// Programs, unless nil, knows what is in files that were looked at before.
	Programs *Programs
	// shared is the path of the site's copy of the program. The hooks of all repositories are hard
	// links to it, where the file system allows that.
	shared string
}

// HooksOf returns the hooks in the directory that git takes them from. The directory must be the
// repository's own: in a shared one our hooks would run for other repositories, too, and others
// could change the hooks of this one.
func HooksOf(ctx context.Context, c *config.Config, repo *gitrepo.Repo, program []byte) (Hooks, error) {
	h := OwnHooks(c, repo, program)
	out, err := repo.Command(ctx, "config", "--type=path", "--get", "core.hooksPath").Output()
	if err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
			return h, nil // not set
		}
		return h, fmt.Errorf("reading core.hooksPath: %w", gitrepo.Failure(ctx, err))
	}
	path := strings.TrimSuffix(string(out), "\n")
	h.Dir = path
	if !filepath.IsAbs(path) {
		return h, fmt.Errorf("core.hooksPath is %q: git looks for that from wherever it runs, and mostly finds no hooks; unset it, "+
			"or set it to %s in the repository's configuration", path, filepath.Join(repo.Dir(), "hooks"))
	}
	if real, err := filepath.EvalSymlinks(h.Dir); err == nil {
		h.Dir = real
	}
	if inside, err := filepath.Rel(repo.Dir(), h.Dir); err != nil || !filepath.IsLocal(inside) {
		return h, fmt.Errorf("core.hooksPath is %q, outside of the repository %s: the hooks would not be this repository's own; unset it, "+
			"or set it to %s in the repository's configuration", path, repo.Dir(), filepath.Join(repo.Dir(), "hooks"))
	}
	return h, nil
}

// OwnHooks returns the hooks of a repository for which core.hooksPath is not set.
func OwnHooks(c *config.Config, repo *gitrepo.Repo, program []byte) Hooks {
	return Hooks{Dir: filepath.Join(repo.Dir(), "hooks"), program: program, shared: filepath.Join(c.State, "refdb-hook")}
}

// ReadHook reads the hook's program, which must be ours.
func ReadHook(path string) ([]byte, error) {
	if !isOurs(path) {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("the hook's program: %w: build or install refdb-hook, or say where it is", err)
		}
		return nil, fmt.Errorf("%s is not refdb-hook: name the program that was built from cmd/refdb-hook", path)
	}
	return os.ReadFile(path)
}

func isOurs(path string) bool {
	info, err := buildinfo.ReadFile(path)
	return err == nil && info.Path == hookProgram
}

// Inspect returns what is wrong with a hook, as one of the codes above, or "".
func (h Hooks) Inspect(name string) (code, detail string) {
	path := filepath.Join(h.Dir, name)
	info, err := os.Lstat(path)
	state := h.Programs.look(path, h.program)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return HookMissing, without(name)
	case err != nil:
		return HookMissing, err.Error()
	case !state.ours:
		return HookForeign, "the hook is not refdb-hook: " + without(name)
	case info.Mode().Type() == fs.ModeSymlink:
		return HookOutdated, "it is a symbolic link: once its target is gone, " + without(name)
	case info.Mode().Perm()&0o111 == 0:
		return HookNotExecutable, "git ignores it: " + without(name)
	case !state.same:
		return HookOutdated, "it is of another version than the refdb-hook beside this program"
	}
	return "", ""
}

// Install puts our hook in place, whatever is there, and returns what it did. There is a hook at
// every moment, if there was one before.
func (h Hooks) Install(name string) (did string, err error) {
	path := filepath.Join(h.Dir, name)
	code, _ := h.Inspect(name)
	switch code {
	case "":
		return "is there", nil
	case HookNotExecutable:
		did = "made executable"
	case HookOutdated:
		did = "replaced by this version"
	case HookMissing:
		did = "installed"
	case HookForeign:
		if err := keepForeign(path); err != nil {
			return "", err
		}
		did = "installed; what was there runs before it, as " + name + chained
	}
	if h.program == nil {
		return "", fmt.Errorf("hook %s: refdb-hook was found neither beside this program nor in PATH: say where it is", name)
	}
	if err := os.MkdirAll(h.Dir, 0o755); err != nil {
		return "", err
	}
	return did, h.place(path)
}

// hookMode lets nobody write to a hook: it would change those of all repositories.
const hookMode = 0o555

// place puts the program at path: as a link to the site's copy, or as a separate copy if the
// site's is on another file system or can't be made.
func (h Hooks) place(path string) error {
	fresh := path + ".refdb-new"
	if err := removeIfThere(fresh); err != nil {
		return err
	}
	if h.share() != nil || os.Link(h.shared, fresh) != nil {
		return durable.WriteFile(path, h.program, hookMode)
	}
	// A rename from one link to another of the same file would leave both.
	if err := errors.Join(os.Rename(fresh, path), removeIfThere(fresh)); err != nil {
		return err
	}
	return durable.SyncDir(h.Dir)
}

// share makes sure that the site has its copy. It replaces an older one, and never writes to it:
// the old file may be running, and the hooks of other repositories still link to it.
func (h Hooks) share() error {
	info, err := os.Lstat(h.shared)
	if err == nil && info.Mode() == hookMode {
		if have, err := os.ReadFile(h.shared); err == nil && bytes.Equal(have, h.program) {
			return nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(h.shared), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(h.shared, h.program, hookMode)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// keepForeign gives another program's hook a second name, under which our hook runs it.
func keepForeign(path string) error {
	kept, err := os.Lstat(path + chained)
	if errors.Is(err, fs.ErrNotExist) {
		return os.Link(path, path+chained)
	}
	if err != nil {
		return err
	}
	if here, err := os.Lstat(path); err == nil && os.SameFile(here, kept) {
		return nil // we were stopped in between
	}
	return fmt.Errorf("neither %s nor %s is refdb-hook: merge them into one and remove the other", path, path+chained)
}

// remove removes our hook and restores the one that was there before.
func (h Hooks) remove(name string) (did string, err error) {
	path := filepath.Join(h.Dir, name)
	switch _, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return "is not there", nil
	case err != nil:
		return "", err
	case !isOurs(path):
		return "is not ours: left alone", nil
	}
	if _, err := os.Lstat(path + chained); err == nil {
		if err := os.Rename(path+chained, path); err != nil {
			return "", err
		}
		return "removed; the one from before is back", durable.SyncDir(h.Dir)
	}
	if err := os.Remove(path); err != nil {
		return "", err
	}
	return "removed", durable.SyncDir(h.Dir)
}
