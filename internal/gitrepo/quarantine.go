package gitrepo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A quarantine is a directory for the objects that a git command writes, as git's own receive-pack has one. A command that fails, as on a full
// disk, leaves files of any size among the objects, which nobody would remove.
type quarantine struct{ dir, objects string }

// newQuarantine makes one. What a crash leaves of it `git prune` removes, by its name.
func (r *Repo) newQuarantine() (quarantine, error) {
	objects := filepath.Join(r.common, "objects")
	dir, err := os.MkdirTemp(objects, "tmp_objdir-refdb-")
	return quarantine{dir, objects}, err
}

// confine lets cmd write its objects here. It still finds those of the repository.
func (q quarantine) confine(cmd *exec.Cmd) {
	quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(q.objects) + `"`
	cmd.Env = append(cmd.Env, "GIT_OBJECT_DIRECTORY="+q.dir, "GIT_ALTERNATE_OBJECT_DIRECTORIES="+quoted)
}

// release moves all files to the repository's objects: the index of a pack after the pack, which git finds by it.
func (q quarantine) release() error {
	var last []string
	err := filepath.WalkDir(q.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || path == q.dir:
			return err
		case d.IsDir():
			return q.makeDir(path, d)
		case strings.HasSuffix(path, ".idx"):
			last = append(last, path)
			return nil
		}
		return q.move(path)
	})
	for _, path := range last {
		if err == nil {
			err = q.move(path)
		}
	}
	return errors.Join(err, q.remove())
}

func (q quarantine) target(path string) string {
	return filepath.Join(q.objects, strings.TrimPrefix(path, q.dir))
}

// makeDir makes the directory among the objects that stands for one of these, with the same mode.
func (q quarantine) makeDir(path string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	err = os.Mkdir(q.target(path), info.Mode().Perm())
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(q.target(path), info.Mode())
}

func (q quarantine) move(path string) error { return os.Rename(path, q.target(path)) }

func (q quarantine) remove() error { return os.RemoveAll(q.dir) }

// WithIncoming returns the repository as the hook pre-receive sees it: with the objects of a push in the directory in which git keeps them until
// that hook has ended. It must be among the repository's objects.
func (r *Repo) WithIncoming(dir string) (*Repo, error) {
	objects := filepath.Join(r.common, "objects")
	real, err := filepath.EvalSymlinks(dir)
	if err == nil && filepath.Dir(real) != objects {
		err = errors.New("it is not in " + objects)
	}
	if err != nil {
		return nil, fmt.Errorf("the objects of the push in %q: %w", dir, err)
	}
	with := *r
	with.incoming = &quarantine{real, objects}
	return &with, nil
}
