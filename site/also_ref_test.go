package site_test

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

func TestWhatGerritKeepsOutIsGuardedIfTheRulesSaySo(t *testing.T) {
	t.Parallel()
	const patchSet, merge = "refs/changes/01/1/1", "refs/cache-automerge/ab/cdef"
	for name, row := range map[string]struct{ settings, want string }{
		"by default": {"", ""},
		"if they do": {"[guard]\n\talsoRef = refs/changes/*", "here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, local.SQLite(t), "eu-1", row.settings)
			want := row.want
			if want != "" {
				want = g.commit[0]
			}
			g.git("update-ref", patchSet, g.commit[0])
			g.git("update-ref", merge, g.commit[0])
			g.resolved()
			if got := g.global(patchSet); got != want {
				t.Errorf("the database has %q of the patch set, want %q", got, want)
			}
			if got := g.global(merge); got != "" {
				t.Errorf("the database has %q of what each Gerrit computes for itself", got)
			}
		})
	}
}
