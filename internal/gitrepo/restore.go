package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Restore brings the objects that faults are about, and others that are missing here, from another repository, which is whole. The damaged files are
// taken away once what is in them is here again, and kept in refdb/damaged: readers find each object all the time. Of a damaged pack
// the objects that from lacks are saved as far as git can read them.
func (r *Repo) Restore(ctx context.Context, from *Repo, faults []Fault) error {
	err := r.restore(ctx, from, faults)
	if err != nil {
		err = fmt.Errorf("restoring objects of %q: %w", r.path, err)
	}
	return err
}

func (r *Repo) restore(ctx context.Context, from *Repo, faults []Fault) error {
	all, err := from.all(ctx)
	if err != nil {
		return err
	}
	here, err := r.Present(ctx, all)
	if err != nil {
		return err
	}
	has, good := setOf(all), setOf(here)
	delete(good, emptyTree)
	delete(good, emptyTree256)
	for _, f := range faults {
		if f.ID == "" && f.File != "" {
			good = nil // whatever is in that pack
			break
		}
		delete(good, f.ID)
	}
	wanted := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return good[id] })
	if len(wanted) > 0 {
		if err := r.takeOver(ctx, from, wanted); err != nil {
			return err
		}
	}
	for _, f := range faults {
		switch {
		case f.File == "":
		case f.ID == "":
			err = r.replacePack(ctx, filepath.Join(r.common, f.File), has)
		case has[f.ID]:
			err = r.keepDamaged(filepath.Join(r.common, f.File))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Git says that it has the empty tree, whether or not it is in a file.
const (
	emptyTree    = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
	emptyTree256 = "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
)

func setOf(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// all returns the IDs of all objects that are here.
func (r *Repo) all(ctx context.Context) ([]string, error) {
	out, err := r.Command(ctx, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the objects of %q: %w", r.path, Failure(ctx, err))
	}
	return strings.Fields(string(out)), nil
}

// takeOver stores objects of another repository in a pack that builds on nothing. Git must not look at what is here: it compares an object that it gets with
// the one that it has, and gives up if that is damaged.
func (r *Repo) takeOver(ctx context.Context, from *Repo, ids []string) error {
	pack, to := io.Pipe()
	go func() {
		cmd := from.interruptible(ctx, "pack-objects", "--stdout", "--delta-base-offset", "-q")
		cmd.Stdin, cmd.Stdout = strings.NewReader(strings.Join(ids, "\n")+"\n"), to
		var complaints bytes.Buffer
		cmd.Stderr = &limited{to: &complaints, left: 1 << 16}
		err := cmd.Run()
		if err != nil {
			err = failure(ctx, err, complaints.String())
		}
		to.CloseWithError(err)
	}()
	defer pack.Close()
	q, err := r.newQuarantine()
	if err != nil {
		return pathReason(err)
	}
	if err := r.alone(ctx, q, pack, "index-pack", "--stdin"); err != nil {
		return errors.Join(err, q.remove())
	}
	return q.release()
}

// alone runs a git command that writes its objects into a quarantine, and sees no others.
func (r *Repo) alone(ctx context.Context, q quarantine, in io.Reader, args ...string) error {
	cmd := r.interruptible(ctx, args...)
	cmd.Env = append(cmd.Env, "GIT_OBJECT_DIRECTORY="+q.dir)
	cmd.Stdin = in
	var complaints bytes.Buffer
	cmd.Stderr = &limited{to: &complaints, left: 1 << 16}
	if err := cmd.Run(); err != nil {
		return failure(ctx, err, complaints.String())
	}
	return nil
}

// replacePack takes a damaged pack away whose objects are here again, if others has them.
func (r *Repo) replacePack(ctx context.Context, path string, others map[string]bool) error {
	base := strings.TrimSuffix(path, ".pack")
	if err := r.salvage(ctx, base, others); err != nil {
		return err
	}
	files := []string{filepath.Join(filepath.Dir(path), "multi-pack-index")} // git makes it anew
	for _, suffix := range []string{".idx", ".pack", ".rev", ".bitmap", ".mtimes", ".keep"} {
		files = append(files, base+suffix)
	}
	return r.keepDamaged(files...)
}

// salvage saves the objects of a damaged pack, other than those given, that git can read.
func (r *Repo) salvage(ctx context.Context, base string, others map[string]bool) error {
	index, err := os.Open(base + ".idx")
	if err != nil {
		return err
	}
	defer index.Close()
	cmd := r.Command(ctx, "show-index", "--object-format="+map[int]string{40: "sha1", 64: "sha256"}[r.idBytes])
	cmd.Stdin = index
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	needed := err != nil // the index is damaged itself
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) > 1 && !others[words[1]] {
			needed = true
		}
	}
	if !needed {
		return nil
	}
	pack, err := os.Open(base + ".pack")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer pack.Close()
	q, err := r.newQuarantine()
	if err != nil {
		return pathReason(err)
	}
	if err := r.alone(ctx, q, pack, "unpack-objects", "-r", "-q"); ctx.Err() != nil {
		return errors.Join(err, q.remove())
	}
	saved, err := filepath.Glob(filepath.Join(q.dir, "[0-9a-f][0-9a-f]", "*"))
	for _, file := range saved {
		if err == nil && others[filepath.Base(filepath.Dir(file))+filepath.Base(file)] {
			err = os.Remove(file)
		}
	}
	if err != nil {
		return errors.Join(err, q.remove())
	}
	return q.release()
}
