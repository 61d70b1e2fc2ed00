package refdbtest

import (
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// intentFilters lists intents of several projects, sites and refs, of which some
// refs have several that were decided.
func intentFilters(e *env) {
	site := e.project
	owners := []string{site, site + "/1", site + "2/1", site + "-", strings.ToUpper(site) + "/1"}
	refs := []string{"HEAD", refA, refA + "/x", "refs/heads/%"}
	var all []refdb.Intent
	for i, project := range []string{"", "-", "/b", "A", "_"} {
		for j, ref := range refs {
			for round := range 3 {
				r := e.intention(e.a, move(ref, "", v1))
				r.Project += project
				r.Owner = owners[(i+j+round)%len(owners)]
				l, err := e.sendIntention(e.a, r)
				e.must(err)
				intent := refdb.Intent{Project: r.Project, Ref: ref, Token: l.Token, Owner: r.Owner}
				if round < 2 {
					if got := e.resolve(e.b, refdb.KeepOld, intent.ID()); !got[0] {
						e.Fatalf("%+v was not pending", intent)
					}
					intent.Decision = refdb.KeepOld
				}
				all = append(all, intent)
			}
		}
	}
	slices.SortFunc(all, func(a, b refdb.Intent) int { return compareCursors(cursorOf(a), cursorOf(b)) })
	projects := make(map[string]bool)
	for _, i := range all {
		projects[i.Project] = true
	}
	for _, decided := range []bool{false, true} {
		for _, project := range []string{"", e.project, e.project + "/b", e.project + "%"} {
			for _, ref := range []string{"", refA, "refs/heads/%", "refs/heads/z"} {
				for _, owner := range []string{"", site, site + "/1", site + "2", strings.ToUpper(site)} {
					f := refdb.IntentFilter{Project: project, Ref: ref, Owner: owner, Decided: decided}
					var want []refdb.Intent
					for _, i := range all {
						if selectsIntent(f, i) {
							want = append(want, i)
						}
					}
					for _, size := range []int{3, 1000} {
						if size == 3 && project == "" && owner == "" {
							continue // thousands of other rows
						}
						got := slices.DeleteFunc(e.intents(refdb.IntentQuery{IntentFilter: f, Limit: size}), func(i refdb.Intent) bool {
							return !projects[i.Project] // another row's
						})
						if !slices.EqualFunc(got, want, sameIntent) {
							e.Errorf("%+v, pages of %d: got %+v, want %+v", f, size, got, want)
						}
					}
				}
			}
		}
	}
}

func sameIntent(a, b refdb.Intent) bool {
	return a.Project == b.Project && a.Ref == b.Ref && a.Token == b.Token && a.Owner == b.Owner && a.Decision == b.Decision
}

// selectsIntent is what an IntentFilter means.
func selectsIntent(f refdb.IntentFilter, i refdb.Intent) bool {
	return (f.Project == "" || i.Project == f.Project) &&
		(f.Ref == "" || i.Ref == f.Ref) &&
		(f.Owner == "" || i.Owner == f.Owner || strings.HasPrefix(i.Owner, f.Owner+"/")) &&
		f.Decided == (i.Decision != refdb.Pending)
}
