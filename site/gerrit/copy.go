package gerrit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// A Source is a copy of what a first site has in its site directory beside repositories and indexes.
type Source struct{ *Directory }

// copied are the directories that a second site takes over.
var copied = [...]string{"etc", "plugins", "lib", "static"}

// OpenSource opens a copy of another site directory. The Gerrit must be guarded, and know who it is.
func OpenSource(ctx context.Context, path string) (Source, error) {
	d, err := Open(ctx, path)
	if errors.Is(err, ErrNotGerrit) {
		if _, beside := os.Stat(filepath.Join(path, "gerrit.config")); beside == nil {
			err = fmt.Errorf("%w: it seems to be etc itself: name the directory above", err)
		}
	}
	if err != nil {
		return Source{}, err
	}
	switch {
	case d.ServerID() == "":
		return Source{}, fmt.Errorf("%s: gerrit.serverId is missing: copy the directory once the first site's Gerrit has run", d.file(GerritConfig))
	case !slices.Contains(d.gerrit.all("gerrit.installDbModule"), DbModule):
		return Source{}, fmt.Errorf("%s: the first site's Gerrit is not guarded: run refdbctl gerrit enable there, and copy the directory again", d.file(GerritConfig))
	}
	return Source{d}, nil
}

// joining is in a site directory as long as a join of it has not come to its end.
const joining = ".refdb-join"

// Joining reports whether a join of the directory at path has begun and not come to its end.
func Joining(path string) bool {
	_, err := os.Stat(filepath.Join(path, joining))
	return err == nil
}

// BeginJoin makes the directory at path, if need be, and notes that it is being joined. It must be empty but for the repositories, or
// being joined already.
func BeginJoin(path string, daemons ...string) error {
	if err := CheckEmpty(path, daemons...); err != nil {
		return err
	}
	err := os.MkdirAll(path, 0o755)
	if err == nil && !Joining(path) {
		err = durable.WriteFile(filepath.Join(path, joining), nil, 0o644)
	}
	return err
}

// CheckEmpty returns an error unless a join of the directory at path may begin, or go on. The daemon's directories may be in it.
func CheckEmpty(path string, daemons ...string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && Joining(path) {
		return nil
	}
	if err != nil {
		return err
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		entry := filepath.Join(absolute, e.Name())
		if slices.ContainsFunc(daemons, func(dir string) bool { return within(entry, dir) }) {
			continue
		}
		return fmt.Errorf("%s has %s: a second site begins in a directory that is new, or has nothing but the repositories", path, e.Name())
	}
	return nil
}

// within reports whether the real path of inner is dir, or below it.
func within(dir, inner string) bool {
	above, err1 := filepath.EvalSymlinks(dir)
	below, err2 := filepath.EvalSymlinks(inner)
	if err1 != nil || err2 != nil {
		return false
	}
	rel, err := filepath.Rel(above, below)
	return err == nil && filepath.IsLocal(rel)
}

// EndJoin notes that the join has come to its end.
func EndJoin(path string) error {
	if err := os.Remove(filepath.Join(path, joining)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return durable.SyncDir(path)
}

// CopyTo copies what a second site takes over to the directory at path, file by file, each whole. Files that are there already are left: an
// earlier join has copied them. Programs' leftovers and sockets are not copied. Nobody may read a copy who could not read the original, and files that
// are known to hold passwords or keys are for their owner alone.
func (s Source) CopyTo(ctx context.Context, path string) (files int, err error) {
	for _, name := range copied {
		from := s.file(name)
		err := filepath.WalkDir(from, func(file string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) && file == from {
				return nil
			}
			if err == nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(s.Path, file)
			if err != nil {
				return err
			}
			did, err := copyEntry(file, filepath.Join(path, rel), e)
			if did {
				files++
			}
			return err
		})
		if err != nil {
			return files, fmt.Errorf("copying %s of the first site: %w", name, err)
		}
	}
	return files, nil
}

// copyEntry copies one file, link or directory, unless it is there. It reports whether it has copied a file.
func copyEntry(from, to string, e fs.DirEntry) (did bool, err error) {
	info, err := e.Info()
	if err != nil {
		return false, err
	}
	if e.IsDir() {
		if err := os.MkdirAll(to, copyMode(info)|0o700); err != nil {
			return false, err
		}
		return false, nil
	}
	if _, err := os.Lstat(to); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	switch info.Mode().Type() {
	case 0:
		f, err := os.Open(from)
		if err != nil {
			return false, err
		}
		defer f.Close()
		text, err := io.ReadAll(f)
		if err != nil {
			return false, err
		}
		return true, durable.WriteFile(to, text, copyMode(info))
	case fs.ModeSymlink:
		target, err := os.Readlink(from)
		if err != nil {
			return false, err
		}
		return true, os.Symlink(target, to)
	}
	return false, nil
}

// secrets are the names of files, in lower case, that have passwords or keys: they are for their owner alone.
var secrets = [...]string{"secure.config", "*.secure.config", "ssh_host_*key", "id_*", "*.key", "*.pem", "*.jks", "*.p12", "*.pfx", "*.keystore", "keystore"}

func isSecret(name string) bool {
	name = strings.ToLower(filepath.Base(name))
	return filepath.Ext(name) != ".pub" && slices.ContainsFunc(secrets[:], func(pattern string) bool {
		match, err := filepath.Match(pattern, name)
		return err == nil && match
	})
}

// copyMode returns the mode of a copy that this process makes of a file or a directory: nobody may read it who could not read the original.
func copyMode(info fs.FileInfo) fs.FileMode {
	mode := info.Mode().Perm()
	// The copy is of this process's group.
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || int(s.Gid) != os.Getegid() {
		mode &^= 0o070 &^ (mode & 0o007 << 3)
	}
	if !info.IsDir() && isSecret(info.Name()) {
		mode &= 0o600
	}
	return mode
}

// A Snapshot is what the files in etc hold at one time.
type Snapshot struct {
	files  map[string][]byte
	config map[string]values // of those in the syntax of git-config
}

// Snapshot reads the files in etc.
func (d *Directory) Snapshot(ctx context.Context) (Snapshot, error) {
	s := Snapshot{map[string][]byte{}, map[string]values{}}
	err := filepath.WalkDir(d.file("etc"), func(file string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(d.Path, file)
		if err == nil {
			s.files[name], err = os.ReadFile(file)
		}
		if err == nil && filepath.Ext(name) == ".config" {
			// A file of another syntax is compared as a whole.
			if v, err := readConfig(ctx, file); err == nil {
				s.config[name] = v
			}
		}
		return err
	})
	return s, err
}

// Differences returns how a later snapshot differs. What may be secret is not shown.
func (s Snapshot) Differences(later Snapshot) (changes []Change) {
	names := maps.Clone(s.files)
	maps.Copy(names, later.files)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		before, was := s.files[name]
		after, is := later.files[name]
		switch {
		case !was:
			changes = append(changes, Change{name, "", "", "made"})
		case !is:
			changes = append(changes, Change{name, "", "there", ""})
		case bytes.Equal(before, after):
		case s.config[name] != nil && later.config[name] != nil:
			changes = append(changes, keyDifferences(name, s.config[name], later.config[name])...)
		default:
			changes = append(changes, Change{name, "", "there", "another content"})
		}
	}
	return changes
}

const hidden = "(not shown)"

func keyDifferences(name string, before, after values) (changes []Change) {
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if slices.Equal(before[key], after[key]) {
			continue
		}
		c := Change{name, key, before.last(key), after.last(key)}
		if isSecret(name) {
			c.Before, c.After = hide(c.Before), hide(c.After)
		}
		changes = append(changes, c)
	}
	return changes
}

func hide(value string) string {
	if value == "" {
		return ""
	}
	return hidden
}
