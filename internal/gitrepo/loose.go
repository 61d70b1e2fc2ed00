package gitrepo

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// A BrokenError says that a ref exists but can't be read: its file is empty, as after a crash of the
// machine, or holds no valid value. The ref has no value until somebody repairs it.
type BrokenError struct {
	Ref    string
	Reason string
}

func (e *BrokenError) Error() string {
	return e.Ref + " is broken: " + e.Reason + ": an administrator has to restore it"
}

const (
	symbolic = "ref: "
	maxLoose = 64 << 10 // bytes of a ref's file: far more than a value has
)

// loose reads the ref's own file. It returns "" if there is none.
func (r *Repo) loose(name string) (string, error) {
	path := filepath.Join(r.common, name)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		// Old versions of git used symbolic links as symbolic refs.
		if target, err := os.Readlink(path); err == nil && strings.HasPrefix(target, "refs/") && wellFormed(target) {
			return symbolic + target, nil
		}
		f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
	if err != nil {
		return "", unlessAbsent(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxLoose))
	if err != nil {
		return "", unlessAbsent(err)
	}
	return r.parseLoose(name, string(text))
}

// unlessAbsent returns nil if err says that no such file exists: there is none, its name is too long,
// it is a directory, or one of its directories is a file.
func unlessAbsent(err error) error {
	for _, absent := range []error{syscall.ENOENT, syscall.EISDIR, syscall.ENOTDIR, syscall.ENAMETOOLONG} {
		if errors.Is(err, absent) {
			return nil
		}
	}
	return err
}

func (r *Repo) parseLoose(name, text string) (string, error) {
	trimmed := strings.TrimRight(text, " \t\r\n\v\f")
	if trimmed == "" {
		return "", &BrokenError{name, "its file is empty"}
	}
	if target, ok := strings.CutPrefix(trimmed, "ref:"); ok {
		target = strings.TrimLeft(target, " \t\r\n\v\f")
		if !wellFormed(target) {
			return "", &BrokenError{name, "its file points to no ref"}
		}
		return symbolic + target, nil
	}
	id := trimmed
	if end := strings.IndexAny(trimmed, " \t\r\n\v\f"); end >= 0 {
		id = trimmed[:end] // git ignores what follows
	}
	id = strings.ToLower(id)
	if !r.isID(id) {
		return "", &BrokenError{name, "its file holds no object ID"}
	}
	return id, nil
}

// isID takes lower case only, and not the zero ID, which no ref can hold.
func (r *Repo) isID(s string) bool {
	return len(s) == r.idBytes && strings.Trim(s, "0123456789abcdef") == "" && strings.Trim(s, "0") != ""
}
