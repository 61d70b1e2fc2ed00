// Package durable writes files that are whole, old or new, after a crash of the machine.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// WriteFile replaces the file at path.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".refdb-*")
	if err != nil {
		return err
	}
	return replace(f, path, content, func() error { return f.Chmod(mode) })
}

// Rewrite replaces the file at path, which must exist. It keeps the file's mode, owner and group.
func Rewrite(path string, content []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".refdb-*")
	if err != nil {
		return err
	}
	return replace(f, path, content, func() error { return errors.Join(own(f, info), f.Chmod(info.Mode().Perm())) })
}

// own gives f the owner and group of another file.
func own(f *os.File, other fs.FileInfo) error {
	was, ok := other.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	made, err := f.Stat()
	if err != nil {
		return err
	}
	if is, ok := made.Sys().(*syscall.Stat_t); ok && is.Uid == was.Uid && is.Gid == was.Gid {
		return nil
	}
	return f.Chown(int(was.Uid), int(was.Gid))
}

// replace writes content to f, a new file beside path, and moves f to path once finish has
// returned.
func replace(f *os.File, path string, content []byte, finish func() error) (err error) {
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = finish()
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
	return SyncDir(filepath.Dir(path))
}

// MkdirAll makes a directory, and those above it that are missing.
func MkdirAll(path string, mode fs.FileMode) error {
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err = MkdirAll(filepath.Dir(path), mode); err == nil {
			err = os.Mkdir(path, mode)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncFile makes what another program has written to a file durable.
func SyncFile(path string) error { return SyncDir(path) }

// SyncDir makes what was created, renamed or removed in a directory durable.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
