package gitrepo_test

import (
	"fmt"
	"testing"
)

func TestSymbolicRefsToNothing(t *testing.T) {
	t.Parallel()
	dir, a := newRepo(t)
	repo := openDir(t, dir)
	git(t, dir, "update-ref", "refs/heads/main", a)
	for ref, target := range map[string]string{
		"refs/heads/d": "refs/heads/none", "refs/remotes/o/HEAD": "refs/remotes/o/gone", "refs/heads/fine": "refs/heads/main", "refs/heads/packed": "refs/tags/packed",
	} {
		git(t, dir, "symbolic-ref", ref, target)
	}
	git(t, dir, "update-ref", "refs/tags/packed", a)
	git(t, dir, "pack-refs", "--all")
	got, err := repo.Dangling(t.Context())
	if want := map[string]string{"refs/heads/d": "refs/heads/none", "refs/remotes/o/HEAD": "refs/remotes/o/gone"}; err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}
