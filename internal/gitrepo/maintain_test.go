package gitrepo_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

func TestUnreached(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	do := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(git(t, dir, append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...))
	}
	do("init", "--quiet", "--bare")
	tree := do("hash-object", "-t", "tree", "-w", "/dev/null")
	commit := func(message string, parents ...string) string {
		args := []string{"commit-tree", "-m", message, tree}
		for _, p := range parents {
			args = append(args, "-p", p)
		}
		return do(args...)
	}
	base := commit("base")
	held := commit("held", base)
	left1 := commit("left1", held)
	left2 := commit("left2", left1)
	other := commit("other", base)
	blob := do("hash-object", "-w", "/dev/null")
	tag := func(name, of string) string {
		do("tag", "-a", "-m", name, name, of)
		id := do("rev-parse", "refs/tags/"+name)
		return id
	}
	heldTag, leftTag := tag("held", held), tag("left", left2)
	do("tag", "-d", "left")
	do("update-ref", "refs/heads/main", held)
	do("update-ref", "refs/pins/"+other, other)
	do("update-ref", "refs/pins/"+blob, blob)
	repo, err := gitrepo.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	missing := strings.Repeat("1", 40)
	got, err := repo.Unreached(t.Context(), []string{base, held, left1, left2, other, blob, heldTag, leftTag, missing}, "refs/pins/")
	slices.Sort(got)
	want := []string{left2, other, blob, leftTag}
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v\nwant %v", got, err, want)
	}
}
