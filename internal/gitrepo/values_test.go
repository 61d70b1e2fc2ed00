package gitrepo_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/internal/testprogram"
)

func TestMain(m *testing.M) {
	home, err := os.MkdirTemp("", "home")
	if err != nil {
		panic(err)
	}
	config := filepath.Join(home, "config")
	if err := os.WriteFile(config, []byte("[user]\n\tname = n\n\temail = e\n[init]\n\tdefaultBranch = main\n"), 0o644); err != nil {
		panic(err)
	}
	for name, value := range map[string]string{"HOME": home, "GIT_CONFIG_GLOBAL": config, "GIT_CONFIG_NOSYSTEM": "1"} {
		os.Setenv(name, value)
	}
	code := m.Run()
	os.RemoveAll(home)
	os.Exit(code)
}

// withEachGit runs a test with the system's git, and those that the list of
// paths GIT_FOR_TEST names.
func withEachGit(t *testing.T, test func(t *testing.T)) {
	t.Run("git", test)
	for _, path := range filepath.SplitList(os.Getenv("GIT_FOR_TEST")) {
		t.Run(path, func(t *testing.T) {
			t.Setenv("PATH", filepath.Dir(path)+string(filepath.ListSeparator)+os.Getenv("PATH"))
			test(t)
		})
	}
}

func openDir(tb testing.TB, path string) *gitrepo.Repo {
	tb.Helper()
	repo, err := gitrepo.OpenDir(path)
	if err != nil {
		tb.Fatal(err)
	}
	return repo
}

func valuesOf(tb testing.TB, repo *gitrepo.Repo, names ...string) map[string]string {
	tb.Helper()
	values, err := repo.Values(tb.Context(), names)
	if err != nil {
		tb.Fatal(err)
	}
	return values
}

// listed is what git itself says that there is.
func listed(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	refs, _ := refsOf(tb, dir)
	all := map[string]string{}
	for _, ref := range refs {
		all[ref.Name] = ref.Value
	}
	return all
}

// commits makes n commits without a parent.
func commits(tb testing.TB, dir string, n int) (ids []string) {
	tb.Helper()
	tree := git(tb, dir, "hash-object", "-t", "tree", "-w", "/dev/null")
	for i := range n {
		ids = append(ids, git(tb, dir, "commit-tree", "-m", fmt.Sprint("number ", i), tree))
	}
	return ids
}

func TestValuesAreWhatGitLists(t *testing.T) {
	withEachGit(t, func(t *testing.T) {
		formats := [][]string{{"--bare"}, {"--bare", "--object-format=sha256"}, nil}
		if exec.Command("git", "init", "--quiet", "--ref-format=reftable", t.TempDir()).Run() == nil {
			formats = append(formats, []string{"--bare", "--ref-format=reftable"})
		} else {
			t.Log("this git has no reftable")
		}
		for _, args := range formats {
			t.Run(fmt.Sprint(args), func(t *testing.T) { randomRefs(t, rand.New(rand.NewPCG(1, 2)), args) })
		}
	})
}

func randomRefs(t *testing.T, random *rand.Rand, args []string) {
	dir, _ := newRepo(t, args...)
	ids := commits(t, dir, 5)
	git(t, dir, "tag", "-a", "-m", "x", "v", ids[0])
	ids = append(ids, git(t, dir, "rev-parse", "refs/tags/v"))
	var names []string
	for i := range 150 {
		kind := []string{"refs/heads/", "refs/heads/dir/", "refs/heads/dir", "refs/tags/", "refs/heads/dir/sub/", "refs/x/\xff", "refs/x/größe'"}[i%7]
		names = append(names, fmt.Sprint(kind, i))
	}
	asked := slices.Concat(names, []string{"refs/heads", "refs/heads/dir", "refs/heads/dir/sub", "refs/heads/dir1/x", "refs/zzz/z", "refs/a", "refs/stash"})
	for round := range 12 {
		var b strings.Builder
		for _, name := range names {
			switch random.IntN(6) {
			case 0:
				id := ids[random.IntN(len(ids))]
				if strings.HasPrefix(name, "refs/heads/") {
					id = ids[random.IntN(5)] // a commit
				}
				fmt.Fprintf(&b, "update %s %s\n", name, id)
			case 1:
				fmt.Fprintf(&b, "delete %s\n", name)
			}
		}
		cmd := exec.Command("git", "update-ref", "--no-deref", "--stdin")
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(b.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		git(t, dir, "symbolic-ref", names[random.IntN(len(names))], "refs/heads/main")
		git(t, dir, "symbolic-ref", "refs/remotes/nowhere", "refs/heads/not-there")
		if round%3 == 1 {
			git(t, dir, "pack-refs", "--all")
		}
		want := listed(t, dir)
		repo := openDir(t, dir)
		for name, repo := range map[string]*gitrepo.Repo{"files": repo, "git": repo.AskingGit()} {
			got := valuesOf(t, repo, asked...)
			for _, ref := range asked {
				if got[ref] != want[ref] {
					t.Fatalf("round %d, by %s: %q holds %q, want %q", round, name, ref, got[ref], want[ref])
				}
			}
		}
		if got := valuesOf(t, repo, "refs/remotes/nowhere")["refs/remotes/nowhere"]; got != "ref: refs/heads/not-there" && !repo.Reftable() {
			t.Errorf("a symbolic ref to nowhere holds %q", got)
		}
		if repo.Reftable() != slices.Contains(args, "--ref-format=reftable") {
			t.Fatal("the format was mistaken")
		}
	}
}

// The lines that a large packed-refs can have: each ref is found in it by
// bisection, and none that isn't there.
func TestPackedRefs(t *testing.T) {
	t.Parallel()
	const header = "# pack-refs with: peeled fully-peeled sorted \n"
	dir, commit := newRepo(t, "--bare")
	file := filepath.Join(dir, "packed-refs")
	if err := os.Remove(filepath.Join(dir, "refs/heads/main")); err != nil {
		t.Fatal(err)
	}
	id := func(i int) string { return fmt.Sprintf("%040x", i+1) }
	random := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 1, 2, 3, 10, 3000} {
		want := map[string]string{}
		for i := range n {
			name := fmt.Sprintf("refs/heads/%06d", 2*i)
			if i%97 == 0 {
				name += strings.Repeat("/long", 1000) // longer than a page
			}
			want[name] = id(i)
		}
		var lines []string
		for _, name := range slices.Sorted(maps.Keys(want)) {
			line := want[name] + " " + name + "\n"
			if random.IntN(3) == 0 {
				line += "^" + commit + "\n"
			}
			lines = append(lines, line)
		}
		sorted := strings.Join(lines, "")
		random.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		shuffled := strings.Join(lines, "")
		names := slices.Collect(maps.Keys(want))
		if n > 100 {
			names = names[:100]
		}
		names = append(names, "refs/a", "refs/heads/0", "refs/heads/000001", "refs/heads/002001", "refs/heads/zzz", "refs/heads/000000/long")
		for kind, text := range map[string]string{"sorted": header + sorted, "no order": "# pack-refs with: peeled \n" + shuffled, "no header": shuffled} {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			got := valuesOf(t, openDir(t, dir), names...)
			for _, name := range names {
				if got[name] != want[name] {
					t.Fatalf("%d refs, %s: %.60q holds %q, want %q", n, kind, name, got[name], want[name])
				}
			}
		}
	}
	for name, text := range map[string]string{
		"no end of line":         header + id(1) + " refs/heads/b",
		"no end of the header":   strings.TrimSpace(header),
		"garbage":                header + "garbage\n",
		"garbage, not sorted":    "garbage\n",
		"IDs of another format":  header + strings.Repeat("1", 64) + " refs/heads/b\n",
		"a hole left by a crash": header + strings.Repeat("\x00", 10_000) + "\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := openDir(t, dir).Values(t.Context(), []string{"refs/heads/b"}); err == nil || !strings.Contains(err.Error(), "packed-refs") {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func TestABrokenRefIsAnErrorAndNotAbsent(t *testing.T) {
	t.Parallel()
	dir, commit := newRepo(t, "--bare")
	git(t, dir, "update-ref", "refs/heads/b", commit)
	git(t, dir, "pack-refs", "--all") // it is packed as well: what is there is an old value
	for text, says := range map[string]string{
		"":                                      "empty",
		" \n":                                   "empty",
		"garbage\n":                             "no object ID",
		commit[1:] + "\n":                       "no object ID",
		commit + "0\n":                          "no object ID",
		strings.Repeat("0", 40) + "\n":          "no object ID",
		strings.Repeat("\x00", 41):              "no object ID",
		strings.Repeat("1", 64) + "\n":          "no object ID",
		"ref: \n":                               "points to no ref",
		"ref: ../../config\n":                   "points to no ref",
		strings.Repeat("1", 10_000_000):         "no object ID",
		commit[:20] + "\n" + commit[20:] + "\n": "no object ID",
	} {
		write(t, text, dir, "refs/heads/b")
		values, err := openDir(t, dir).Values(t.Context(), []string{"refs/heads/main", "refs/heads/b"})
		var broken *gitrepo.BrokenError
		if !errors.As(err, &broken) || broken.Ref != "refs/heads/b" || !strings.Contains(err.Error(), says) {
			t.Errorf("%.50q: got %q, %v", text, values, err)
		}
	}
	write(t, "garbage\n", dir, "refs/heads/b")
	var broken *gitrepo.BrokenError
	if _, err := openDir(t, dir).AskingGit().Values(t.Context(), []string{"refs/heads/b"}); !errors.As(err, &broken) {
		t.Errorf("by git: got %v", err)
	}
	for text, want := range map[string]string{
		strings.ToUpper(commit) + "\n": commit,
		commit:                         commit,
		commit + " \n":                 commit,
		commit + "\tbranch 'x' of y\n": commit,
		"ref:refs/heads/main":          "ref: refs/heads/main",
		"ref:  refs/heads/main \n":     "ref: refs/heads/main",
	} {
		write(t, text, dir, "refs/heads/b")
		if got := valuesOf(t, openDir(t, dir), "refs/heads/b")["refs/heads/b"]; got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestWhereAFileCanNotBe(t *testing.T) {
	t.Parallel()
	dir, commit := newRepo(t, "--bare")
	git(t, dir, "update-ref", "refs/heads/packed", commit)
	git(t, dir, "pack-refs", "--all")
	git(t, dir, "update-ref", "refs/heads/file", commit)
	write(t, "x", dir, "refs/heads/dir/sub/file.lock")
	if err := os.MkdirAll(filepath.Join(dir, "refs/heads/packed"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"old-symref": "refs/heads/main", "elsewhere": filepath.Join(dir, "refs/heads/file"), "nowhere": "/nonexistent"} {
		if err := os.Symlink(target, filepath.Join(dir, "refs/heads", link)); err != nil {
			t.Fatal(err)
		}
	}
	got := valuesOf(t, openDir(t, dir), "refs/heads/packed", "refs/heads/file/below", "refs/heads/dir", "refs/heads/dir/sub",
		"refs/heads/old-symref", "refs/heads/elsewhere", "refs/heads/nowhere", "refs/heads/"+strings.Repeat("x", 255))
	want := map[string]string{"refs/heads/packed": commit, "refs/heads/old-symref": "ref: refs/heads/main", "refs/heads/elsewhere": commit}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestANameNeverLeadsOutOfTheRefs(t *testing.T) {
	t.Parallel()
	dir, commit := newRepo(t, "--bare")
	write(t, commit+"\n", dir, "secret")
	for _, name := range []string{"", "HEAD", "secret", "config", "main", "/refs/heads/main", "refs/../secret", "refs/heads/../../secret", "refs/heads/./main",
		"refs//heads/main", "refs/heads/main/", "refs/heads/main.lock", "refs/heads/.main", "refs/heads/a b", "refs/heads/a\nb", "refs/heads/a\x00",
		"refs/heads/a*", "refs/heads/a\\b", "refs/heads/a@{1}", "refs/heads/a.", "refs/", "refs", "--all", "@"} {
		repo := openDir(t, dir)
		for _, repo := range []*gitrepo.Repo{repo, repo.AskingGit()} {
			if got, err := repo.Values(t.Context(), []string{name}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
				t.Errorf("%q: got %q, %v", name, got, err)
			}
		}
		if _, err := repo.IsPackingRef(name, commit); err == nil {
			t.Errorf("%q is a name to prune", name)
		}
	}
}

func TestPruneIsToldFromDelete(t *testing.T) {
	withEachGit(t, func(t *testing.T) {
		dir, commit := newRepo(t, "--bare")
		other := commits(t, dir, 1)[0]
		// The hook keeps what it was told, and waits in prepared until it may go on.
		hook := "#!/bin/sh\n[ $1 = prepared ] || exit 0\ncat >>told\n[ -e go ] || { touch waiting; until [ -e go ]; do sleep 0.01; done; }\n"
		if err := testprogram.Write(filepath.Join(dir, "hooks/reference-transaction"), []byte(hook)); err != nil {
			t.Fatal(err)
		}
		during := func(look func(repo *gitrepo.Repo), args ...string) {
			t.Helper()
			os.Remove(filepath.Join(dir, "go"))
			os.Remove(filepath.Join(dir, "waiting"))
			cmd := exec.Command("git", args...)
			cmd.Dir = dir
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
				if _, err := os.Stat(filepath.Join(dir, "waiting")); err == nil {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("the hook was not run")
				}
			}
			look(openDir(t, dir))
			write(t, "", dir, "go")
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
		is := func(repo *gitrepo.Repo, ref, value string, want bool) {
			t.Helper()
			if got, err := repo.IsPackingRef(ref, value); err != nil || got != want {
				t.Errorf("%s, %.7s: got %v, %v, want %v", ref, value, got, err, want)
			}
		}
		const ref = "refs/heads/main"
		prepared := func(args ...string) []string { return append([]string{"-c", "core.hooksPath=/dev/null"}, args...) }

		git(t, dir, prepared("pack-refs", "--all")...)
		is(openDir(t, dir), ref, commit, true)
		is(openDir(t, dir), ref, other, false)
		is(openDir(t, dir), "refs/heads/absent", commit, false)
		during(func(repo *gitrepo.Repo) { is(repo, ref, commit, false) }, "update-ref", "-d", ref, commit)

		git(t, dir, prepared("update-ref", ref, commit)...)
		git(t, dir, prepared("pack-refs", "--all", "--no-prune")...)
		during(func(repo *gitrepo.Repo) { is(repo, ref, commit, false) }, "update-ref", "-d", ref, commit)
		git(t, dir, prepared("update-ref", ref, commit)...)
		during(func(repo *gitrepo.Repo) { is(repo, ref, commit, false) }, "update-ref", "-d", ref, commit)

		is(openDir(t, dir).AskingGit(), ref, commit, false)
		if err := os.Remove(filepath.Join(dir, "packed-refs")); err == nil {
			is(openDir(t, dir), ref, commit, false)
		}
	})
}
