package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	chunk       = 256 // refs that are read from files at a time
	commandArgs = 500 // refs that git is asked for at a time
)

// Values returns what the named refs hold: an object ID, or "ref: " and the
// target of a symbolic ref. A ref that is absent is not in the map. Each value was current at
// some time during the call, but they need not all have been at the same time. A
// ref that can't be read is a [*BrokenError]. HEAD is read by [Repo.Head].
func (r *Repo) Values(ctx context.Context, names []string) (map[string]string, error) {
	for _, name := range names {
		if err := checkName(name); err != nil {
			return nil, fmt.Errorf("repository %q: %w", r.path, err)
		}
	}
	read, size := r.readFiles, chunk
	if r.format != "files" {
		read, size = r.askGit, commandArgs
	}
	values := make(map[string]string, len(names))
	for part := range slices.Chunk(names, size) {
		if err := read(ctx, part, values); err != nil {
			return nil, fmt.Errorf("reading refs of %q: %w", r.path, err)
		}
	}
	return values, nil
}

// readFiles adds the values of names to values.
//
// Git writes a ref to packed-refs before it removes the ref's own file, and deletes a ref from
// packed-refs before it deletes the file. So a ref without a file has the value in a packed-refs that is opened
// later. If that has none, the ref was absent only if packed-refs was the same before: otherwise
// the ref may have got a file of its own meanwhile.
func (r *Repo) readFiles(ctx context.Context, names []string, values map[string]string) error {
	before, err := r.openPacked()
	if err != nil {
		return err
	}
	defer func() { before.close() }()
	for len(names) > 0 {
		var missing, unsure []string
		for _, name := range names {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			value, err := r.loose(name)
			if err != nil {
				return err
			}
			if value == "" {
				missing = append(missing, name)
			} else {
				values[name] = value
			}
		}
		same, err := before.current(r)
		if err != nil {
			return err
		}
		if !same {
			before.close()
			if before, err = r.openPacked(); err != nil {
				return err
			}
		}
		for _, name := range missing {
			value, err := before.find(name)
			if err != nil {
				return err
			}
			if value != "" {
				values[name] = value
			} else if !same {
				unsure = append(unsure, name)
			}
		}
		names = unsure
	}
	return nil
}

// askGit does the same for formats that only git can read. A symbolic ref to nowhere is absent
// to git.
func (r *Repo) askGit(ctx context.Context, names []string, values map[string]string) error {
	// A full name is a pattern that selects that ref: no ref's name has a wildcard.
	args := append([]string{"for-each-ref", "--format=%(objectname)%00%(symref)%00%(refname)", "--"}, names...)
	cmd := r.Command(ctx, args...)
	var complaints bytes.Buffer
	cmd.Stderr = &limited{to: &complaints, left: 1 << 20}
	out, err := cmd.Output()
	if err != nil {
		return reason(ctx, withStderr(err, complaints.Bytes()))
	}
	for line := range strings.Lines(string(out)) {
		ref, ok := parseRef(line)
		if !ok {
			return fmt.Errorf("git for-each-ref printed %q", line)
		}
		values[ref.Name] = ref.Value
	}
	for line := range strings.Lines(complaints.String()) {
		if fields := strings.Fields(line); len(fields) > 0 && slices.Contains(names, fields[len(fields)-1]) {
			return &BrokenError{fields[len(fields)-1], "git says: " + strings.TrimSpace(line)}
		}
	}
	return nil
}

// IsPackingRef reports whether git runs the hook for the deletion of ref only because it has packed ref,
// which holds value, and removes its file: packed-refs has the value and is not locked. While a ref is
// deleted it is locked.
func (r *Repo) IsPackingRef(ref, value string) (bool, error) {
	if err := checkName(ref); err != nil {
		return false, fmt.Errorf("repository %q: %w", r.path, err)
	}
	if r.format != "files" {
		return false, nil
	}
	found, err := r.packedValue(ref)
	if err != nil {
		return false, fmt.Errorf("reading packed-refs of %q: %w", r.path, err)
	}
	return found == value && found != "", nil
}

// packedValue returns the ref's value in packed-refs; "" if it has none, or packed-refs is locked.
func (r *Repo) packedValue(ref string) (string, error) {
	path := r.packedPath()
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // git locks the file itself, not the link to it
	}
	if _, err := os.Lstat(path + ".lock"); !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	p, err := r.openPacked()
	if err != nil {
		return "", err
	}
	defer p.close()
	return p.find(ref)
}
