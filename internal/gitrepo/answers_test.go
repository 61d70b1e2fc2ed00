package gitrepo_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
)

// objectFile returns the path of a loose object.
func objectFile(dir, id string) string { return filepath.Join(dir, "objects", id[:2], id[2:]) }

// Git fails if objects are missing, and fails in the same way if anything else is wrong. Only the first is an answer.
func TestAFailureOfGitIsNoAnswer(t *testing.T) {
	const none = "1111111111111111111111111111111111111111"
	for name, row := range map[string]struct {
		harm    func(t *testing.T, dir, parent string)
		missing bool   // the answer is no
		says    string // or an error has git's words
	}{
		"nothing":          {func(*testing.T, string, string) {}, false, ""},
		"a missing parent": {func(t *testing.T, dir, parent string) { remove(t, objectFile(dir, parent)) }, true, ""},
		"a missing tree": {func(t *testing.T, dir, parent string) {
			remove(t, objectFile(dir, git(t, dir, "rev-parse", parent+"^{tree}")))
		}, true, ""},
		"a missing blob": {func(t *testing.T, dir, parent string) {
			remove(t, objectFile(dir, git(t, dir, "rev-parse", parent+":content")))
		}, true, ""},
		"a ref to nowhere": {func(t *testing.T, dir, _ string) { write(t, none+"\n", dir, "refs/heads/broken") }, false, "refs/heads/broken"},
		"a damaged parent": {func(t *testing.T, dir, parent string) { damage(t, objectFile(dir, parent)) }, false, "git says"},
		"an empty file of a tree": {func(t *testing.T, dir, parent string) {
			empty(t, objectFile(dir, git(t, dir, "rev-parse", parent+"^{tree}")))
		}, false, "git says"},
		"a configuration that git can't read": {func(t *testing.T, dir, _ string) { write(t, "[core\n", dir, "config") }, false, "bad config"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, _ := newRepo(t, "--bare")
			parent := commitOn(t, dir, "parent")
			tip := commitOn(t, dir, "tip", parent)
			repo := openDir(t, dir)
			row.harm(t, dir, parent)
			found, err := repo.Connected(t.Context(), []string{tip})
			answers(t, "Connected", found[tip], err, !row.missing, row.says)
			whole, err := repo.IsConnectedBesideRefs(t.Context(), []string{tip}, nil)
			answers(t, "IsConnectedBesideRefs", whole, err, !row.missing, row.says)
			if row.says != "refs/heads/broken" { // it does not look at refs
				whole, err = repo.IsConnected(t.Context(), []string{tip}, nil)
				answers(t, "IsConnected", whole, err, !row.missing, row.says)
			}
		})
	}
	t.Run("a missing tip", func(t *testing.T) {
		t.Parallel()
		dir, _ := newRepo(t, "--bare")
		whole, err := openDir(t, dir).IsConnected(t.Context(), []string{none}, nil)
		answers(t, "IsConnected", whole, err, false, "")
	})
	t.Run("a missing base", func(t *testing.T) {
		t.Parallel()
		dir, tip := newRepo(t, "--bare")
		whole, err := openDir(t, dir).IsConnected(t.Context(), []string{tip}, []string{none})
		answers(t, "IsConnected", whole, err, false, "")
	})
}

// A git that is killed, such as for want of memory, says nothing.
func TestAKilledGitIsNoAnswer(t *testing.T) {
	dir, tip := newRepo(t, "--bare")
	git(t, dir, "update-ref", "--no-deref", "HEAD", tip)
	repo := openDir(t, dir)
	bin := t.TempDir()
	script := "#!/bin/sh\ncase \"$*\" in *cat-file*) cat | sed 's/$/ commit 1/' ;; *) kill -9 $$ ;; esac\n"
	if err := testprogram.Write(filepath.Join(bin, "git"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	found, err := repo.Connected(t.Context(), []string{tip})
	answers(t, "Connected", found[tip], err, true, "killed")
	whole, err := repo.IsConnected(t.Context(), []string{tip}, nil)
	answers(t, "IsConnected", whole, err, true, "killed")
	_, err = repo.Head(t.Context())
	answers(t, "Head", false, err, true, "killed")
	partial, err := repo.IsPartial(t.Context())
	answers(t, "IsPartial", partial, err, true, "killed")
}

func answers(t *testing.T, what string, got bool, err error, want bool, says string) {
	t.Helper()
	switch {
	case says == "" && (err != nil || got != want):
		t.Errorf("%s: %t, %v, want %t", what, got, err, want)
	case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
		t.Errorf("%s: %t, %v, want an error with %q", what, got, err, says)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func empty(t *testing.T, path string) {
	t.Helper()
	remove(t, path)
	write(t, "", path)
}

func damage(t *testing.T, path string) {
	t.Helper()
	remove(t, path)
	write(t, "no zlib stream", path)
}
