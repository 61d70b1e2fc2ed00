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
	return replace(path, content, mode, func(*os.File) error { return nil })
}

// Rewrite replaces the file at path, which is there. Its mode, owner and group stay.
func Rewrite(path string, content []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return replace(path, content, info.Mode().Perm(), func(f *os.File) error {
		was, ok := info.Sys().(*syscall.Stat_t)
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
	})
}

// replace calls own with the new file before it is at its path.
func replace(path string, content []byte, mode fs.FileMode, own func(*os.File) error) (err error) {
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
		err = own(f)
	}
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
