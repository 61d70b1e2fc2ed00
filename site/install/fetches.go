package install

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/site/config"
)

// A Fetch is a refspec of a remote by which git fetch writes to guarded refs.
type Fetch struct{ Key, Refspec string }

// Why says what such a refspec does, and what to do about it in the repository dir.
func (f Fetch) Why(dir string) string {
	return fmt.Sprintf("git fetch, with the refspec %s, moves guarded refs to what that repository has, or deletes them, at all sites; "+
		"what git push would do to them by it is refused. Remove it with git --git-dir=%s config --unset-all %s", f.Refspec, dir, f.Key)
}

// GuardedFetches returns the refspecs in a repository's own configuration that cover guarded refs, as those of mirrors do. Refs
// below refs/remotes/ are left out.
func GuardedFetches(c *config.Config, project string, v Variables) (found []Fetch) {
	for _, key := range slices.Sorted(maps.Keys(v.Local)) {
		if !strings.HasPrefix(key, "remote.") || !strings.HasSuffix(key, ".fetch") {
			continue
		}
		for _, refspec := range v.Local[key] {
			_, to, stores := strings.Cut(refspec, ":")
			if !stores || to == "" {
				continue
			}
			if !strings.HasPrefix(to, "refs/") { // git completes it
				to = "refs/heads/" + to
			}
			prefix, suffix, _ := strings.Cut(to, "*")
			if c.GuardsAny(project, prefix, suffix) {
				found = append(found, Fetch{key, refspec})
			}
		}
	}
	return found
}
