package gitrepo

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A Fault is an object that is missing, or a file with objects that is damaged.
type Fault struct {
	ID     string // of the object; "" for a pack
	File   string // below the repository's directory; "" if there is none
	Reason string
}

// Subject names what is at fault.
func (f Fault) Subject() string {
	switch {
	case f.File != "":
		return f.File
	case f.ID != "":
		return f.ID
	}
	return "objects"
}

// Faults reads all objects of the repository, which takes as long as the disk does, and returns those that are damaged, and those that refs
// reach and that are missing. Objects of alternates are not read.
func (r *Repo) Faults(ctx context.Context) (faults []Fault, err error) {
	for _, look := range []func(context.Context) ([]Fault, error){r.damagedLoose, r.damagedPacks, r.missing} {
		found, err := look(ctx)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("looking at the objects of %q: %w", r.path, err)
		}
		faults = append(faults, found...)
	}
	// Git takes a damaged object for missing, or gets no further.
	return slices.DeleteFunc(faults, func(f Fault) bool {
		return f.File == "" && slices.ContainsFunc(faults, func(other Fault) bool { return other.File != "" && (other.ID == f.ID || f.ID == "") })
	}), nil
}

// Alternates returns the directories outside of the repository from which it takes objects, without symbolic links.
func (r *Repo) Alternates() (all []string, err error) {
	text, err := os.ReadFile(filepath.Join(r.objects(), "info", "alternates"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for line := range strings.Lines(string(text)) {
		dir := strings.TrimSuffix(line, "\n")
		if dir == "" || strings.HasPrefix(dir, "#") {
			continue
		}
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(r.objects(), dir)
		}
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		all = append(all, dir)
	}
	return all, err
}

func (r *Repo) objects() string { return filepath.Join(r.common, "objects") }

func (r *Repo) damagedLoose(ctx context.Context) (faults []Fault, err error) {
	files, err := filepath.Glob(filepath.Join(r.objects(), "[0-9a-f][0-9a-f]", "*"))
	for _, file := range files {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		id := filepath.Base(filepath.Dir(file)) + filepath.Base(file)
		if len(id) != r.idBytes || strings.Trim(id, "0123456789abcdef") != "" {
			continue // a temporary file
		}
		got, err := r.hashLoose(file)
		switch {
		case errors.Is(err, fs.ErrNotExist): // packed or pruned meanwhile
		case err == nil && got == id:
		case err == nil:
			faults = append(faults, r.fault(id, file, "it holds "+got))
		case pathReason(err) != err:
			faults = append(faults, r.fault(id, file, pathReason(err).Error()))
		default:
			faults = append(faults, r.fault(id, file, err.Error()))
		}
	}
	return faults, err
}

func (r *Repo) fault(id, file, reason string) Fault {
	below, err := filepath.Rel(r.common, file)
	if err != nil {
		below = file
	}
	return Fault{id, below, reason}
}

// hashLoose returns the ID of what the file of a loose object holds.
func (r *Repo) hashLoose(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	raw := bufio.NewReader(f)
	in, err := zlib.NewReader(raw)
	if err == io.EOF {
		return "", errors.New("it is empty")
	}
	if err != nil {
		return "", err
	}
	var sum hash.Hash = sha1.New()
	if r.idBytes == 64 {
		sum = sha256.New()
	}
	if _, err := io.Copy(sum, in); err != nil {
		return "", err
	}
	if _, err := raw.ReadByte(); err != io.EOF {
		return "", errors.New("something follows the object")
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func (r *Repo) damagedPacks(ctx context.Context) (faults []Fault, err error) {
	indexes, err := filepath.Glob(filepath.Join(r.objects(), "pack", "pack-*.idx"))
	for _, index := range indexes {
		_, bad := r.Maintain(ctx, true, nil, "verify-pack", index)
		if bad == nil {
			continue
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if _, gone := os.Lstat(index); gone != nil {
			continue // repacked meanwhile
		}
		faults = append(faults, r.fault("", strings.TrimSuffix(index, ".idx")+".pack", bad.Error()))
	}
	return faults, err
}

// missing returns what git finds missing on its way from the refs. That it does not get to the end is a fault of its own.
func (r *Repo) missing(ctx context.Context) (faults []Fault, err error) {
	cmd := r.interruptible(ctx, "fsck", "--connectivity-only", "--no-dangling", "--no-reflogs", "--no-progress")
	var complaints bytes.Buffer
	cmd.Stderr = &limited{to: &complaints, left: 1 << 20}
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		return nil, failure(ctx, err, complaints.String())
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() >= 128 {
		faults = append(faults, Fault{Reason: failure(ctx, err, complaints.String()).Error()})
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "missing" && !seen[words[2]] {
			seen[words[2]] = true
			faults = append(faults, Fault{ID: words[2], Reason: "git finds no " + words[1] + " of that ID"})
		}
	}
	for line := range strings.Lines(complaints.String()) {
		// A ref to what is not here, which git does not follow.
		_, id, ok := strings.Cut(strings.TrimSpace(line), ": invalid sha1 pointer ")
		if ok && r.isID(id) && !seen[id] {
			seen[id] = true
			faults = append(faults, Fault{ID: id, Reason: "git says: " + strings.TrimPrefix(strings.TrimSpace(line), "error: ")})
		}
	}
	return faults, nil
}
