package check

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

// foreign finds that the repository belongs to another user than this process, which runs as the
// daemon's. The daemon can neither read the repository nor decide about it.
func (k *repositoryCheck) foreign() (bool, error) {
	info, err := os.Stat(k.Path)
	if err != nil {
		return false, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(s.Uid) == os.Geteuid() {
		return false, nil
	}
	k.find(ForeignOwner, k.Path, fmt.Sprintf("it belongs to user %d, but the site's daemon serves only repositories of user %d: nobody can push; as root: `chown -R %[2]d %[3]s`",
		s.Uid, os.Geteuid(), k.Path), nil)
	return true, nil
}

// unguarded finds that the repository was never put under guard. A repository whose guard was ended
// by `site disable` does not concern the site.
func (k *repositoryCheck) unguarded(ctx context.Context, v install.Variables) (bool, error) {
	if install.HasGuard(k.repo, v) {
		return false, nil
	}
	_, known := k.rules[k.Project]
	if install.WasDisabled(v) || !known && !k.GuardsProject(k.Project) {
		return true, nil
	}
	empty, err := projects.HasNoRefs(ctx, k.Repository)
	if err != nil {
		return true, err
	}
	enable := fmt.Sprintf("`refdbctl site enable --new %s`", k.Path)
	switch {
	case k.db == nil:
		enable = fmt.Sprintf("`refdbctl site enable %s`", k.Path)
	case known && empty:
		enable = fmt.Sprintf("`refdbctl site enable --copy %s` if it is a copy of the project that the database knows (if it is another project, give it another path)", k.Path)
	case known:
		enable = fmt.Sprintf("`refdbctl site enable %s`", k.Path)
	}
	k.find(NotGuarded, k.Path, fmt.Sprintf("it is not under guard: pushes to it are not compared with other sites' pushes: run %s; to leave it unguarded, run `refdbctl site disable %s`", enable, k.Path), nil)
	return true, nil
}

// moved finds that the repository is a copy of another project than its path stands for. Then its
// content says nothing about the path's project.
func (k *repositoryCheck) moved(ctx context.Context, v install.Variables) (bool, error) {
	id, ok := v.Get(projects.IDKey)
	row, known := k.rules[k.Project]
	if k.db == nil || !ok || known && row.ID == id {
		return false, nil
	}
	actual, err := projects.NameOf(ctx, k.db, id)
	if err != nil {
		return false, err
	}
	what, advice := "of a project that the database does not know", ""
	unset := fmt.Sprintf("`git --git-dir=%s config --unset %s`", k.Path, projects.IDKey)
	ofItsOwn := fmt.Sprintf("; if it should be a project of its own, %s, then `refdbctl site enable --new %s`", unset, k.Path)
	if known {
		ofItsOwn = ""
	}
	switch {
	case actual != "":
		what = "of " + actual + ": it was moved or copied"
		if original, err := k.Config.Repository(actual); err == nil {
			advice = fmt.Sprintf("that project's copy is %s: move this repository out of site.root", original.Path) + ofItsOwn
			break
		}
		back := ""
		if path, err := k.Config.NewPath(actual); err == nil {
			back = " to " + path
		}
		advice = fmt.Sprintf("move it back%s, or set `[repository %q] path = %s` in the site's configuration", back, actual, k.Path) + ofItsOwn
	case known:
		advice = fmt.Sprintf("move it out of site.root; or, if it is a copy of %s, %s, then `refdbctl site enable --copy %s`", k.Project, unset, k.Path)
	default:
		advice = fmt.Sprintf("the database was set back, for example by a restore, or the repository comes from elsewhere: if its name is right, run `refdbctl site enable --new %s`", k.Path)
	}
	k.find(Moved, k.Path, fmt.Sprintf("it is not a copy of %s, but %s (git's setting %s); pushes to it are refused: %s", k.Project, what, projects.IDKey, advice), nil)
	return true, nil
}
