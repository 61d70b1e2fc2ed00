// Package hookdir manages the directory of a site's hooks, which all guarded repositories of the
// site share. The repositories' own hooks stay where they are: refdb-hook runs them from there.
//
// Each repository hides all its refs from pushes. At the end of its configuration it includes a
// file from the directory, which shows the refs again and sets core.hooksPath. So without the
// directory no push is accepted, and no other setting of the repository leads git to other hooks.
//
//	DIR/current -> VERSION      a link, which changes in one step
//	DIR/VERSION/NAME            refdb-hook, under the names of git's hooks
//	DIR/VERSION/config          leads git to the hooks, and shows refs to pushes
//	DIR/VERSION/config-DIGEST   the same for repositories that hide some by other settings
//	DIR/current -> VERSION      a link, which changes in one step
//	DIR/VERSION/NAME            refdb-hook, under the names of git's hooks
//	DIR/VERSION/config          leads git to the hooks, and shows refs to pushes
//	DIR/VERSION/config-DIGEST   the same for repositories that hide some by other settings
package hookdir

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/globalrefdb/globalrefdb/site/internal/durable"
	"github.com/globalrefdb/globalrefdb/site/internal/filelock"
)

// Names are the hooks in the directory. The first one decides about a push; the second and third
// may refuse it; the others only run the repository's own hooks.
var Names = [...]string{"reference-transaction", "update", "pre-receive", "proc-receive", "post-receive", "post-update"}

// Hidden are the prefixes of refs that are hidden from clients, in the form of git's setting.
var Hidden = [...]string{"refs/peer", "refs/refdb"}

const (
	current = "current"
	// unfinished is the prefix of the name of a version that is being built.
	unfinished = ".new-"
	config     = "config"
	// Every pusher runs the hooks, and nobody writes to them: since the names are links to one
	// file, changing one would change all. Their owner may remove them.
	dirMode, hookMode, configMode = 0o755, 0o555, 0o444
)

// A Dir is the path of a site's hook directory.
type Dir string

// HooksPath returns the value of core.hooksPath in a guarded repository.
func (d Dir) HooksPath() string { return filepath.Join(string(d), current) }

// Config returns the path of the file that a guarded repository's configuration includes if other
// settings hide these refs from pushes, in this order. The file hides them again.
func (d Dir) Config(hidden []string) string {
	return filepath.Join(d.HooksPath(), configName(hidden))
}

// IsConfig reports whether path is the file of [Dir.Config] for any refs, of the directory with the
// given HooksPath.
func IsConfig(path, hooksPath string) bool {
	name := filepath.Base(path)
	return filepath.Dir(path) == hooksPath && (name == config || strings.HasPrefix(name, config+"-"))
}

func configName(hidden []string) string {
	if len(hidden) == 0 {
		return config
	}
	sum := sha256.Sum256([]byte(strings.Join(hidden, "\n")))
	return config + "-" + hex.EncodeToString(sum[:])[:16]
}

// configText returns the configuration that leads git to the hooks, and shows refs to pushes,
// except for Hidden and the refs that are hidden by other settings.
func (d Dir) configText(hidden []string) []byte {
	text := "# Pushes into guarded repositories are refused without this file.\n[core]\n\thooksPath = " + quoted(d.HooksPath()) + "\n[receive]\n\thideRefs = !refs\n"
	for _, prefix := range slices.Concat(hidden, Hidden[:]) {
		text += "\thideRefs = " + quoted(prefix) + "\n"
	}
	return []byte(text)
}

// quoted returns a value as it is written in git's configuration files.
func quoted(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
}

// Including returns the configuration that includes [Dir.Config] for these refs.
func (d Dir) Including(hidden []string) string {
	return "[include]\n\tpath = " + quoted(d.Config(hidden)) + "\n"
}

// version returns the name of the directory with the hooks of a program.
func (d Dir) version(program []byte) string {
	sum := sha256.New()
	sum.Write(program)
	sum.Write(d.configText(nil))
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// Provide makes sure that the directory has intact hooks. It creates the hooks of the program, and
// switches the directory to them if turn is set or the present hooks are not intact. It replaces
// damaged files, and never leaves the directory without the hooks that it had. A crash leaves
// either the old hooks or the new ones.
func (d Dir) Provide(ctx context.Context, program []byte, turn bool) (did string, err error) {
	version := d.version(program)
	if target, _ := os.Readlink(d.HooksPath()); target == version && len(d.faults(program)) == 0 {
		return "is there", nil // checking needs no privileges
	} else if target != version && !turn && len(d.faults(nil)) == 0 {
		return "is there, but of another version: the daemon replaces it when it starts", nil
	}
	if err := durable.MkdirAll(string(d), 0o755); err != nil {
		return "", fmt.Errorf("making the directory of the site's hooks (site.hooks): %w", err)
	}
	lock, err := filelock.Exclusive(ctx, filepath.Join(string(d), "lock"))
	if err != nil {
		return "", fmt.Errorf("site.hooks: %w", err)
	}
	defer lock.Close()
	if err := letIn(string(d)); err != nil {
		return "", fmt.Errorf("site.hooks: %w", err)
	}
	target, _ := os.Readlink(d.HooksPath())
	made, err := d.makeVersion(version, program)
	if err != nil {
		return "", fmt.Errorf("making the site's hooks: %w", err)
	}
	if target == version {
		if made {
			return "repaired", nil
		}
		return "is there", nil
	}
	if deciding := filepath.Join(string(d), version, Names[0]); unix.Access(deciding, unix.X_OK) != nil {
		return "", fmt.Errorf("%s can't be run, for example because its file system is mounted noexec: git would ignore it, and pushes would not be guarded: mount the file system with exec, or set site.hooks to another directory", deciding)
	}
	if err := d.copyConfigs(target, version); err != nil {
		return "", fmt.Errorf("making the site's hooks: %w", err)
	}
	if err := d.lead(version); err != nil {
		return "", fmt.Errorf("making the site's hooks: %w", err)
	}
	if target == "" {
		return "made", d.removeOthers(version)
	}
	// A git process that is about to run a hook of the previous version must find it.
	return "replaced by this version", d.removeOthers(version, target)
}

// letIn makes a directory readable and searchable for all users.
func letIn(dir string) error {
	info, err := os.Stat(dir)
	if err != nil || info.Mode()&0o555 == 0o555 {
		return err
	}
	return os.Chmod(dir, info.Mode()|0o555)
}

// makeVersion makes sure that the directory of a version is complete. Made reports whether anything
// was missing.
func (d Dir) makeVersion(version string, program []byte) (made bool, err error) {
	dir := filepath.Join(string(d), version)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		fresh, err := os.MkdirTemp(string(d), unfinished)
		if err != nil {
			return false, err
		}
		if _, err := d.fill(fresh, program); err != nil {
			return false, errors.Join(err, os.RemoveAll(fresh))
		}
		return true, errors.Join(os.Rename(fresh, dir), durable.SyncDir(string(d)))
	}
	return d.fill(dir, program)
}

// fill writes the files that are missing or wrong in the directory of a version.
func (d Dir) fill(dir string, program []byte) (made bool, err error) {
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return false, errors.Join(err, fmt.Errorf("%s is no directory: remove it", dir))
	}
	if err := os.Chmod(dir, dirMode); err != nil {
		return false, err
	}
	whole := ""
	for _, name := range Names {
		path := filepath.Join(dir, name)
		if holds(path, program, hookMode) {
			whole = path
			continue
		}
		made = true
		if whole == "" {
			err = durable.WriteFile(path, program, hookMode)
			whole = path
		} else {
			err = link(whole, path)
		}
		if err != nil {
			return false, err
		}
	}
	if path := filepath.Join(dir, config); !holds(path, d.configText(nil), configMode) {
		made = true
		if err := durable.WriteFile(path, d.configText(nil), configMode); err != nil {
			return false, err
		}
	}
	return made, durable.SyncDir(dir)
}

// ProvideConfig makes sure that the directory has [Dir.Config] for these refs. The directory must
// be intact.
func (d Dir) ProvideConfig(ctx context.Context, hidden []string) error {
	path, text := d.Config(hidden), d.configText(hidden)
	if holds(path, text, configMode) {
		return nil
	}
	lock, err := filelock.Exclusive(ctx, filepath.Join(string(d), "lock"))
	if err != nil {
		return fmt.Errorf("site.hooks: %w", err)
	}
	defer lock.Close()
	dir, err := filepath.EvalSymlinks(d.HooksPath())
	if err != nil {
		return err
	}
	return write(dir, filepath.Base(path), text)
}

// copyConfigs copies the files that repositories with other settings include from the hooks of one
// version to those of another.
func (d Dir) copyConfigs(from, to string) error {
	paths, err := filepath.Glob(filepath.Join(string(d), from, config+"-*"))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err == nil {
			err = write(filepath.Join(string(d), to), filepath.Base(path), text)
		}
		if err != nil {
			return err
		}
	}
	return err
}

// write writes a file into the directory of a version.
func write(dir, name string, text []byte) error {
	return durable.WriteFile(filepath.Join(dir, name), text, configMode)
}

// holds reports whether a file has this content and mode.
func holds(path string, content []byte, mode fs.FileMode) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != mode {
		return false
	}
	have, err := os.ReadFile(path)
	return err == nil && bytes.Equal(have, content)
}

// link makes path another name of a file, replacing whatever is there.
func link(file, path string) error {
	fresh := path + unfinished
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Link(file, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// lead switches the directory to the hooks of a version.
func (d Dir) lead(version string) error {
	fresh := filepath.Join(string(d), unfinished+current)
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(version, fresh); err != nil {
		return err
	}
	if info, err := os.Lstat(d.HooksPath()); err == nil && info.IsDir() {
		if err := os.RemoveAll(d.HooksPath()); err != nil {
			return err
		}
	}
	return errors.Join(os.Rename(fresh, d.HooksPath()), durable.SyncDir(string(d)))
}

// removeOthers removes the hooks of all other versions, and the remains of interrupted builds.
func (d Dir) removeOthers(kept ...string) error {
	entries, err := os.ReadDir(string(d))
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(kept, e.Name()) && (strings.HasPrefix(e.Name(), unfinished) || isVersion(e.Name())) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(string(d), e.Name())))
		}
	}
	return err
}

func isVersion(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == 8
}

// Close removes the link to the hooks, so that all pushes are refused. It is called if the hooks
// are damaged and can't be repaired.
func (d Dir) Close() error {
	err := os.Remove(d.HooksPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
