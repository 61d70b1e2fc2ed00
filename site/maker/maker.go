// Package maker makes repositories where nothing looks for them, and brings each one to its path, complete, with one rename.
//
// They are made in a directory of site.root that is reserved for that. Only a repository that is to be elsewhere, such as on another file
// system, is made in a directory beside its path.
package maker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
	"github.com/globalrefdb/globalrefdb/site/internal/filelock"
)

// A Maker makes the repository of one path.
type Maker struct {
	path string   // of the repository
	home string   // the directory in which it is made
	key  string   // begins the names there that are about this path
	lock *os.File // nil: others may make it, too
	dir  string   // of the repository that is being made; "" if there is none
}

// New returns the Maker of a repository of the site that is to be at path, once no other process makes that. It removes what a maker of
// the path has left that was killed. [Maker.Close] has to be called.
func New(ctx context.Context, c *config.Config, path string) (_ *Maker, err error) {
	parent, err := parentOf(path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(filepath.Join(parent, filepath.Base(path))))
	m := &Maker{path: path, home: parent, key: config.Unfinished + hex.EncodeToString(sum[:])}
	if common, err := homeBelow(c, parent); err != nil {
		return nil, err
	} else if common != "" {
		m.home = common
	}
	if err := m.take(ctx); err != nil {
		return nil, err
	}
	if err := m.removeUnfinished(); err != nil {
		return nil, errors.Join(fmt.Errorf("removing what an earlier process has left: %w", err), m.Close())
	}
	return m, nil
}

// Outside returns the Maker of a repository at a path that belongs to no site. Others may have the directory in which it is, such as /tmp: no name
// there is used that they could foresee.
func Outside(path string) (*Maker, error) {
	parent, err := parentOf(path)
	return &Maker{path: path, home: parent, key: config.Unfinished + "copy"}, err
}

// parentOf makes the directory in which path is, and returns its real path.
func parentOf(path string) (string, error) {
	parent := filepath.Dir(path)
	if err := durable.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(parent)
}

// homeBelow returns the directory of the root in which repositories are made that are to be in parent; "" if they have to be made there.
func homeBelow(c *config.Config, parent string) (string, error) {
	if !c.IsBelowRoot(filepath.Join(parent, "any")) {
		return "", nil
	}
	common := filepath.Join(c.Root, config.UnfinishedDir)
	for {
		err := canRename(common, parent)
		switch {
		case err == nil:
			return common, nil
		case errors.Is(err, fs.ErrNotExist): // a maker that has just ended removed it
		case errors.Is(err, syscall.EXDEV), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
			return "", nil
		default:
			return "", err
		}
	}
}

// probe begins the names of files by which canRename looks.
const probe = "probe-"

// canRename returns nil if what is in dir can be renamed to below another directory. Devices don't say that: a bind mount has that of its source.
func canRename(dir, other string) error {
	if err := mkdir(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, probe+"*")
	if err != nil {
		return err
	}
	defer func() {
		os.Remove(f.Name())
		f.Close()
	}()
	// No file takes the place of a directory. The kernel looks first whether both are on one mount.
	if err := syscall.Rename(f.Name(), other); !errors.Is(err, syscall.EISDIR) && !errors.Is(err, syscall.EEXIST) && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil
}

func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// take takes the lock of the path.
func (m *Maker) take(ctx context.Context) error {
	path := filepath.Join(m.home, m.key+".lock")
	for {
		f, err := filelock.Exclusive(ctx, path)
		if errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
			continue // a maker that has just ended removed the directory
		}
		if err != nil {
			return err
		}
		// The process that had it before us has removed the file.
		locked, err1 := f.Stat()
		there, err2 := os.Lstat(path)
		if err1 == nil && err2 == nil && os.SameFile(locked, there) {
			m.lock = f
			return nil
		}
		if err := errors.Join(err1, f.Close()); err != nil {
			return err
		}
	}
}

// removeUnfinished removes the repositories for this path that were not brought there.
func (m *Maker) removeUnfinished() error {
	entries, err := os.ReadDir(m.home)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), m.key+"-") {
			err = errors.Join(err, os.RemoveAll(filepath.Join(m.home, e.Name())))
		}
	}
	return err
}

// Dir makes the directory of the repository, which is empty.
func (m *Maker) Dir() (dir string, err error) {
	if _, err := os.Lstat(m.path); !errors.Is(err, fs.ErrNotExist) {
		return "", errors.Join(fmt.Errorf("%s is there already: remove it, or move it away", m.path), err)
	}
	m.dir, err = os.MkdirTemp(m.home, m.key+"-*")
	return m.dir, err
}

// Finish brings the repository to its path. Its files are durable, except for git's configuration.
func (m *Maker) Finish() error {
	if err := os.Chmod(m.dir, 0o755); err != nil {
		return err
	}
	if err := errors.Join(durable.SyncFile(filepath.Join(m.dir, "config")), durable.SyncDir(m.dir)); err != nil {
		return err
	}
	if err := os.Rename(m.dir, m.path); err != nil {
		return err
	}
	m.dir = ""
	return durable.SyncDir(filepath.Dir(m.path))
}

// Close removes the repository unless it was brought to its path, and lets other processes make it.
func (m *Maker) Close() (err error) {
	if m.dir != "" {
		err = os.RemoveAll(m.dir)
	}
	if m.lock != nil {
		err = errors.Join(err, os.Remove(m.lock.Name()), m.lock.Close())
	}
	if filepath.Base(m.home) != config.UnfinishedDir {
		return err
	}
	// The last maker removes the directory, too.
	if rest := os.Remove(m.home); rest != nil && !errors.Is(rest, syscall.ENOTEMPTY) && !errors.Is(rest, fs.ErrExist) && !errors.Is(rest, fs.ErrNotExist) {
		err = errors.Join(err, rest)
	}
	return err
}
