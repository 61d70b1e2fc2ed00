package site

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
)

// hookNames are the hooks that guard a repository: the first decides, the second
// explains, and the third reads what the second needs.
var hookNames = [...]string{"reference-transaction", "update", "pre-receive"}

// without says what comes of it if git doesn't run our hook.
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
	// chained is added to the name of a hook that was there before ours, which runs it first.
	chained = ".chained"
)

// hookFiles are the hooks of a repository.
type hookFiles struct {
	dir string
	// program is what ours should hold; nil if it isn't known.
	program []byte
	// shared is the path of the site's own copy of the program, which all
	// repositories' hooks are links to where that can be.
	shared string
}

// hooksOf finds the directory that git takes a repository's hooks from. It
// must belong to the repository: in one that others share, our hooks would
// run for them too, and those of the repository can be changed from outside.
func hooksOf(ctx context.Context, c *Config, repo *gitrepo.Repo, program []byte) (hookFiles, error) {
	h := hookFiles{dir: filepath.Join(repo.Dir(), "hooks"), program: program, shared: filepath.Join(c.State, "refdb-hook")}
	out, err := repo.Command(ctx, "config", "--type=path", "--get", "core.hooksPath").Output()
	if err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
			return h, nil // not set
		}
		return h, fmt.Errorf("reading core.hooksPath: %w", gitError(ctx, err))
	}
	path := strings.TrimSuffix(string(out), "\n")
	h.dir = path
	if !filepath.IsAbs(path) {
		return h, fmt.Errorf("core.hooksPath is %q: git looks for that from wherever it runs, and mostly finds no hooks; unset it, "+
			"or set it to %s in the repository's configuration", path, filepath.Join(repo.Dir(), "hooks"))
	}
	if real, err := filepath.EvalSymlinks(h.dir); err == nil {
		h.dir = real
	}
	if inside, err := filepath.Rel(repo.Dir(), h.dir); err != nil || !filepath.IsLocal(inside) {
		return h, fmt.Errorf("core.hooksPath is %q, outside of the repository %s: the hooks would not be this repository's own; unset it, "+
			"or set it to %s in the repository's configuration", path, repo.Dir(), filepath.Join(repo.Dir(), "hooks"))
	}
	return h, nil
}

// readHook reads the hook's program, which must be ours.
func readHook(path string) ([]byte, error) {
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

// look returns what is wrong with a hook, as a finding's code, or "".
func (h hookFiles) look(name string) (code, detail string) {
	path := filepath.Join(h.dir, name)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return HookMissing, without(name)
	case err != nil:
		return HookMissing, err.Error()
	case !isOurs(path):
		return HookForeign, "the hook is not refdb-hook: " + without(name)
	case info.Mode().Type() == fs.ModeSymlink:
		return HookOutdated, "it is a symbolic link: once its target is gone, " + without(name)
	case info.Mode().Perm()&0o111 == 0:
		return HookNotExecutable, "git ignores it: " + without(name)
	}
	if h.program == nil {
		return "", ""
	}
	if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, h.program) {
		return HookOutdated, "it is of another version than the refdb-hook beside this program"
	}
	return "", ""
}

// install puts our hook in place, whatever is there, and says what it did. At
// no moment is there no hook.
func (h hookFiles) install(name string) (did string, err error) {
	path := filepath.Join(h.dir, name)
	code, _ := h.look(name)
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
	if err := os.MkdirAll(h.dir, 0o755); err != nil {
		return "", err
	}
	return did, h.place(path)
}

// hookMode lets nobody write to a hook: it would change those of all repositories.
const hookMode = 0o555

// place puts the program at path, by a link to the site's copy, or as a copy of its
// own if that is on another file system, or can't be made.
func (h hookFiles) place(path string) error {
	fresh := path + ".refdb-new"
	if err := removeIfThere(fresh); err != nil {
		return err
	}
	if h.share() != nil || os.Link(h.shared, fresh) != nil {
		return writeFile(path, h.program, hookMode)
	}
	// A rename from one link to another of the same file would leave both.
	if err := errors.Join(os.Rename(fresh, path), removeIfThere(fresh)); err != nil {
		return err
	}
	return syncDir(h.dir)
}

// share makes sure that the site has its copy. An older one is not written to, but
// replaced: it may be running, and other repositories' hooks keep it.
func (h hookFiles) share() error {
	info, err := os.Lstat(h.shared)
	if err == nil && info.Mode() == hookMode {
		if have, err := os.ReadFile(h.shared); err == nil && bytes.Equal(have, h.program) {
			return nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(h.shared), 0o700); err != nil {
		return err
	}
	return writeFile(h.shared, h.program, hookMode)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// keepForeign gives somebody else's hook a second name, under which ours runs it.
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

// remove takes our hook away and puts back what was there before.
func (h hookFiles) remove(name string) (did string, err error) {
	path := filepath.Join(h.dir, name)
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
		return "removed; the one from before is back", syncDir(h.dir)
	}
	if err := os.Remove(path); err != nil {
		return "", err
	}
	return "removed", syncDir(h.dir)
}

// writeFile puts a file in place whole, and durably.
func writeFile(path string, content []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".refdb-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
