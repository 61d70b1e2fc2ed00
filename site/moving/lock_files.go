package moving

import "github.com/globalrefdb/globalrefdb/internal/gitrepo"

// LockFiles returns the lock files that are there of the moves' refs, by the paths of the
// repositories.
func (co *Coordinator) LockFiles(moves []*Move) map[string][]gitrepo.LockFile {
	refs, deletes := map[string][]string{}, map[string]bool{}
	for _, m := range moves {
		path := m.Path
		if r, err := co.State.Config().Repository(m.Project); path == "" && err == nil {
			path = r.Path
		}
		if path != "" {
			refs[path] = append(refs[path], m.Ref)
			deletes[path] = deletes[path] || m.New.IsAbsent()
		}
	}
	found := map[string][]gitrepo.LockFile{}
	for path, names := range refs {
		found[path] = gitrepo.LocksOf(path, append(names, "HEAD"), deletes[path])
	}
	return found
}
