package gitrepo_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

func TestOpenDirFindsTheCommonDirectory(t *testing.T) {
	t.Parallel()
	tree, commit := newRepo(t)
	tree, err := filepath.EvalSymlinks(tree)
	if err != nil {
		t.Fatal(err)
	}
	more := filepath.Join(t.TempDir(), "more")
	git(t, tree, "worktree", "add", "--quiet", "--detach", more, commit)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(tree, ".git"), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{tree, filepath.Join(tree, ".git"), link, more, filepath.Join(tree, ".git/worktrees/more")} {
		repo, err := gitrepo.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		for _, repo := range []*gitrepo.Repo{repo, openDir(t, path)} {
			if want := filepath.Join(tree, ".git"); repo.Dir() != want {
				t.Errorf("%s: got %s, want %s", path, repo.Dir(), want)
			}
			if got := valuesOf(t, repo, "refs/heads/main")["refs/heads/main"]; got != commit {
				t.Errorf("%s: main holds %q", path, got)
			}
		}
	}
	write(t, "no pointer", t.TempDir(), ".git")
	for _, path := range []string{filepath.Join(tree, ".git/refs"), filepath.Join(tree, "nowhere"), filepath.Join(tree, ".git/config"), t.TempDir()} {
		if _, err := gitrepo.OpenDir(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestAnUnknownFormatOfObjectsIsRefused(t *testing.T) {
	t.Parallel()
	dir, _ := newRepo(t, "--bare")
	write(t, "[extensions]\n\tobjectFormat = sha512\n", dir, "config")
	if _, err := gitrepo.OpenDir(dir); err == nil || !strings.Contains(err.Error(), `"sha512"`) {
		t.Errorf("got %v", err)
	}
}

// Git says what each of these means.
func TestConfigIsReadAsGitReadsIt(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"[extensions]\n\trefStorage = reftable\n",
		"[EXTENSIONS]\nREFSTORAGE=reftable",
		"[extensions] refstorage = reftable # comment\n",
		"[extensions]\nrefstorage = \"ref\"table ; comment\n",
		"[extensions]\nrefstorage = ref\\\ntable\n",
		"[extensions]\nrefstorage = \"a # b\"\nobjectformat\n",
		"[extensions]\nrefstorage = files\nrefstorage = reftable\n",
		"[extensions \"sub]\"]\nrefstorage = reftable\n[extensions]\nobjectformat = sha256\n",
		"# [extensions]\n; refstorage = reftable\n[core]\n\tbare = true\n[extensions]\r\n\tobjectformat = sha256\r\n",
		"[core]\n\tx = \"a\\\"b\" # [extensions]\n[extensions]\nrefstorage=  two  words  \n",
		"[a]\nextensions.refstorage = x\n[extensions]\n\n\n\tobjectformat\t=\tsha1\n",
		"\ufeff[extensions]\nrefstorage = reftable\n",
		"[extensions]\nrefstorage =\n",
	} {
		file := filepath.Join(t.TempDir(), "config")
		write(t, text, file)
		want := map[string]string{}
		got := gitrepo.ParseConfig(text)
		maps.DeleteFunc(got, func(key, _ string) bool { return !strings.HasPrefix(key, "extensions.") })
		if strings.Contains(text, "extensions.refstorage") {
			want["extensions.objectformat"] = "sha1" // git refuses the dot
		} else {
			for line := range strings.SplitSeq(git(t, "", "config", "--file", file, "--null", "--list"), "\x00") {
				key, value, set := strings.Cut(line, "\n")
				if !set {
					value = "true"
				}
				if strings.HasPrefix(key, "extensions.") && strings.Count(key, ".") == 1 {
					want[key] = value
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// Not parallel: it takes all file descriptors.
func TestForWantOfDescriptorsARepositoryIsStillOne(t *testing.T) {
	dir, _ := newRepo(t, "--bare")
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	for {
		f, err := os.Open("/dev/null")
		if err != nil {
			break
		}
		defer f.Close()
	}
	if _, err := gitrepo.OpenDir(dir); !errors.Is(err, unix.EMFILE) || strings.Contains(err.Error(), "not a Git repository") {
		t.Errorf("got %v", err)
	}
}
