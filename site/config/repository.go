package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// ErrNotConfigured says that a repository or project is not one of the site's. The
// message says what to do.
var ErrNotConfigured = errors.New("not a repository of this site")

// ErrExists says that a project that is to get a repository here has one.
var ErrExists = errors.New("has a repository")

// A Repository is one that the site guards.
type Repository struct {
	Project string // its name in the database, the same on all sites
	Path    string // of the Git directory, absolute, without symbolic links
}

func (c *Config) addRepository(project, path string) error {
	if err := driver.CheckProject(project); err != nil {
		return err
	}
	if project == SitesProject {
		return errors.New("that project is the sites' own: give the repository another name")
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%q is not an absolute path", path)
	}
	if _, ok := c.paths[project]; ok {
		return errors.New("the project has two paths: leave one")
	}
	// One that is missing must not keep the others from being served.
	path = filepath.Clean(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = gitDir(real)
	}
	if other, ok := c.projectAt[path]; ok {
		return fmt.Errorf("%s is the path of %q already: a repository is one project", path, other)
	}
	c.paths[project], c.projectAt[path] = path, project
	return nil
}

// Find returns the repository at dir, its common Git directory. The error
// wraps [ErrNotConfigured] if the site has none there, or no single name for it.
func (c *Config) Find(dir string) (Repository, error) {
	path, err := filepath.EvalSymlinks(dir)
	if err != nil || !filepath.IsAbs(path) {
		return Repository{}, fmt.Errorf("%w: %q is not the absolute path of a directory", ErrNotConfigured, dir)
	}
	if project, ok := c.projectAt[path]; ok {
		return Repository{project, path}, nil
	}
	name, ok := strings.CutPrefix(path, strings.TrimSuffix(c.root, "/")+"/")
	if c.root == "" || !ok {
		return Repository{}, fmt.Errorf("%w: %s is neither below site.root nor the path of a [repository] in its configuration",
			ErrNotConfigured, path)
	}
	name = strings.TrimSuffix(strings.TrimSuffix(name, "/.git"), ".git")
	r, err := c.below(name)
	if err == nil && r.Path != path {
		err = fmt.Errorf("%w: the path of project %q is %s", ErrNotConfigured, name, r.Path)
	}
	if err != nil {
		return Repository{}, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Repository returns the repository of a project. The error wraps
// [ErrNotConfigured] if the site has none, or if its name leads out of site.root.
func (c *Config) Repository(project string) (Repository, error) {
	if path, ok := c.paths[project]; ok {
		return Repository{project, path}, nil
	}
	r, err := c.below(project)
	if err != nil {
		return Repository{}, err
	}
	// The name may lead through symbolic links, out of the root or to where
	// another project is.
	if real, err := filepath.EvalSymlinks(r.Path); err != nil || real != r.Path {
		return Repository{}, fmt.Errorf("%w: project %q leads through a symbolic link: name it as a [repository]", ErrNotConfigured, project)
	}
	return r, nil
}

// below returns the repository of a project whose path follows from its name. The path may
// lead through symbolic links.
func (c *Config) below(project string) (Repository, error) {
	if err := driver.CheckProject(project); err != nil {
		return Repository{}, err
	}
	if path, ok := c.paths[project]; ok {
		return Repository{}, fmt.Errorf("%w: the path of project %q is %s", ErrNotConfigured, project, path)
	}
	if c.root == "" {
		return Repository{}, fmt.Errorf("%w: project %q has no [repository], and there is no site.root", ErrNotConfigured, project)
	}
	if !isLocalName(project) {
		return Repository{}, fmt.Errorf("%w: project %q can't be a path below site.root", ErrNotConfigured, project)
	}
	var found []string
	for _, candidate := range []string{project + ".git", project} {
		if dir := gitDir(filepath.Join(c.root, candidate)); isRepository(dir) {
			found = append(found, dir)
		}
	}
	switch len(found) {
	case 0:
		return Repository{}, fmt.Errorf("%w: there is no repository of project %q below %s", ErrNotConfigured, project, c.root)
	case 2:
		return Repository{}, fmt.Errorf("%w: project %q could be %s or %s: name one as a [repository]", ErrNotConfigured, project, found[0], found[1])
	}
	if other, ok := c.projectAt[found[0]]; ok {
		return Repository{}, fmt.Errorf("%w: %s is project %q", ErrNotConfigured, found[0], other)
	}
	return Repository{project, found[0]}, nil
}

// isLocalName reports whether a project's name can be a path below site.root.
func isLocalName(project string) bool {
	return project != SitesProject && filepath.IsLocal(project) && filepath.Clean(project) == project && project != "." && !strings.HasSuffix(project, ".git") &&
		!isUnfinished(project)
}

// Repositories returns all repositories of the site, those found below
// site.root too, in the order of their projects.
func (c *Config) Repositories() ([]Repository, error) {
	var all []Repository
	for project, path := range c.paths {
		all = append(all, Repository{project, path})
	}
	err := c.walk(func(path string, d fs.DirEntry) {
		if !d.IsDir() {
			return
		}
		if r, err := c.Find(gitDir(path)); err == nil && c.paths[r.Project] == "" {
			all = append(all, r)
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Repository) int { return strings.Compare(a.Project, b.Project) })
	return all, nil
}

// An Unserved repository is below site.root, and none of the site's.
type Unserved struct {
	Path   string
	Reason error
}

// Unserved returns the repositories below site.root that [Config.Repositories] leaves out, such as one whose name can't be a project's, and symbolic links to
// repositories elsewhere.
func (c *Config) Unserved() (all []Unserved, err error) {
	err = c.walk(func(path string, d fs.DirEntry) {
		if _, err := c.Find(gitDir(path)); err != nil {
			all = append(all, Unserved{path, err})
		}
	})
	return all, err
}

// walk calls found with each repository below site.root, and with each symbolic link to one.
func (c *Config) walk(found func(path string, d fs.DirEntry)) error {
	if c.root == "" {
		return nil
	}
	err := filepath.WalkDir(c.root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), Unfinished):
			return fs.SkipDir
		case !d.IsDir() && d.Type()&fs.ModeSymlink == 0, path == c.root, !isRepository(gitDir(path)):
			return nil
		}
		found(path, d)
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("looking for repositories: %w", err)
	}
	return err
}

// Names reports whether the configuration says where the repository of a project is.
func (c *Config) Names(project string) bool { return c.paths[project] != "" }

// NewPath returns where the repository of a project that has none is to be. The error wraps [ErrExists] if it has
// one, or [ErrNotConfigured] if its name can't be a path below site.root.
func (c *Config) NewPath(project string) (string, error) {
	if path, ok := c.paths[project]; ok {
		return path, nil
	}
	switch r, err := c.below(project); {
	case err == nil:
		return "", fmt.Errorf("project %q %w: %s: move it away first, or put it under guard with `refdbctl site enable`", project, ErrExists, r.Path)
	case c.root == "" || driver.CheckProject(project) != nil || !isLocalName(project):
		return "", err
	}
	path := filepath.Join(c.root, project+".git")
	// A symbolic link may lead out of the root, and a repository above hides those below it.
	for dir := filepath.Dir(path); dir != c.root; dir = filepath.Dir(dir) {
		if info, err := os.Lstat(dir); err == nil && (!info.IsDir() || isRepository(gitDir(dir))) {
			return "", fmt.Errorf("%w: project %q can't be below %s, which is a repository, a link or a file", ErrNotConfigured, project, dir)
		}
	}
	return path, nil
}

// NewRepository returns the repository that is to be made at path, or was there. The error wraps [ErrNotConfigured] if the site has no
// project for the path.
func (c *Config) NewRepository(path string) (Repository, error) {
	project, ok := c.projectAt[path]
	if !ok {
		name, below := strings.CutPrefix(path, strings.TrimSuffix(c.root, "/")+"/")
		if project, ok = strings.CutSuffix(name, ".git"); c.root == "" || !below || !ok {
			return Repository{}, fmt.Errorf("%w: %s is not the path of a project below site.root", ErrNotConfigured, path)
		}
	}
	want, err := c.NewPath(project)
	if err == nil && want != path {
		err = fmt.Errorf("%w: the path of project %q is %s", ErrNotConfigured, project, want)
	}
	return Repository{project, path}, err
}

// gitDir returns the Git directory of the repository, or of the work tree, at path.
func gitDir(path string) string {
	inner := filepath.Join(path, ".git")
	if info, err := os.Stat(inner); err == nil && info.IsDir() {
		return inner
	}
	return path
}

// isRepository reports whether git would take the directory for a Git directory.
func isRepository(dir string) bool {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}
