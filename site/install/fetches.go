package install

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A Fetch is a refspec of a remote by which git fetch writes to guarded refs.
type Fetch struct{ Key, Refspec string }

// Why says what such a refspec does, and what to do about it in the repository dir of a project. mirror is the site that
// the project is declared a mirror at, and here is this one.
func (f Fetch) Why(dir, project, mirror, here string) string {
	text := fmt.Sprintf("git fetch, with the refspec %s, moves guarded refs to what that repository has, or deletes them, at all sites; "+
		"what git push would do to them by it is refused. ", f.Refspec)
	remove := wire.RemoveSetting(dir, f.Key)
	if mirror != "" {
		return text + fmt.Sprintf("The project is a mirror that the site %s fetches, and no other. Remove it here with `%s`", mirror, remove)
	}
	return text + fmt.Sprintf("Remove it with `%s`; or, if the project is a mirror that this site alone fetches, run `refdbctl project set %s --mirror-at %s`", remove, project, here)
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
