package gitrepo_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

func TestGitDoesNotGetTheDatabasesAddress(t *testing.T) {
	t.Setenv("REFDB_URL", "postgres://refdb:secret@db/refdb")
	dir, _ := newRepo(t, "--bare")
	repo := openDir(t, dir)
	t.Setenv("GIT_DIR", "/elsewhere")
	for _, env := range [][]string{gitrepo.Environ(), repo.Command(t.Context(), "version").Env} {
		if slices.ContainsFunc(env, func(entry string) bool {
			return strings.HasPrefix(entry, "REFDB_URL=") || strings.HasPrefix(entry, "GIT_DIR=")
		}) {
			t.Errorf("git gets %q", env)
		}
	}
}

func TestGitSeesObjectsAsTheyAre(t *testing.T) {
	t.Parallel()
	dir, _ := newRepo(t, "--bare")
	repo := openDir(t, dir)
	for _, env := range [][]string{gitrepo.Environ(), repo.Command(t.Context(), "version").Env} {
		if !slices.Contains(env, "GIT_NO_REPLACE_OBJECTS=1") {
			t.Errorf("git gets %q", env)
		}
	}
}
