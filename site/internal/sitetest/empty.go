package sitetest

import (
	"path/filepath"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

// EmptyRepo makes a bare repository that nothing guards.
func EmptyRepo(tb testing.TB) (repo *gitrepo.Repo, dir string) {
	tb.Helper()
	dir = filepath.Join(tb.TempDir(), "r.git")
	GitIn(tb, filepath.Dir(dir), "init", "--quiet", "--bare", dir)
	repo, err := gitrepo.OpenDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return repo, dir
}
