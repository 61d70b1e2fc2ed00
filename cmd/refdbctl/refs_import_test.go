package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
)

type problemJSON struct {
	Result, Ref, Detail string
	Local, Global       *string
}

type importJSON struct {
	Project                                                           string
	Problems                                                          []problemJSON
	Imported, Overwritten, Equal, Different, Locked, Refused, Skipped int
	InvalidNames                                                      int `json:"invalid_names"`
	Pruned                                                            int
	Complete, DryRun                                                  bool
}

// counts returns the numbers in the order of the summary.
func (i importJSON) counts() string {
	return fmt.Sprint(i.Imported, i.Overwritten, i.Equal, i.Different, i.Locked, i.Refused, i.Skipped)
}

type verifyJSON struct {
	Project     string
	Differences []problemJSON
	Equal       int
	LocalOnly   int `json:"local_only"`
	GlobalOnly  int `json:"global_only"`
	Different   int
	Skipped     int
	Refused     int
	OK          *bool
}

func (v verifyJSON) counts() string {
	return fmt.Sprint(v.Equal, v.LocalOnly, v.GlobalOnly, v.Different, v.Skipped, v.Refused)
}

func (w *world) importing(tb testing.TB, r *repo, code int, args ...string) importJSON {
	tb.Helper()
	got := w.run(tb, append([]string{"refs", "import", "p", "--repo", r.path, "-o", "json"}, args...)...)
	got.is(tb, code, "")
	return decode[importJSON](tb, got.out)
}

func (w *world) verifying(tb testing.TB, r *repo, code int, args ...string) verifyJSON {
	tb.Helper()
	got := w.run(tb, append([]string{"refs", "verify", "p", "--repo", r.path, "-o", "json"}, args...)...)
	got.is(tb, code, "")
	v := decode[verifyJSON](tb, got.out)
	if v.OK == nil || *v.OK != (code == exit.OK) {
		tb.Errorf("ok is wrong: %+v", v)
	}
	return v
}

func TestImportAndVerifyThousandsOfRefs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newRepo(t, branches(3500)...)
	if got := w.importing(t, r, exit.OK, "--dry-run"); got.counts() != "3500 0 0 0 0 0 0" {
		t.Errorf("dry run: %+v", got)
	}
	if got := w.verifying(t, r, exit.Failed); got.counts() != "0 3500 0 0 0 0" || len(got.Differences) != 3500 {
		t.Errorf("a dry run imports nothing: %s", got.counts())
	}
	if got := w.importing(t, r, exit.OK); got.counts() != "3500 0 0 0 0 0 0" || !got.Complete {
		t.Errorf("import: %+v", got)
	}
	if got := w.importing(t, r, exit.OK); got.counts() != "0 0 3500 0 0 0 0" {
		t.Errorf("import again: %+v", got)
	}
	if got := w.verifying(t, r, exit.OK); got.counts() != "3500 0 0 0 0 0" {
		t.Errorf("verify: %+v", got)
	}
	table := w.run(t, "refs", "verify", "p", "--repo", r.path)
	if table.is(t, exit.OK, ""); table.out != "p: 3500 equal, 0 local only, 0 global only, 0 different, 0 skipped, 0 refused\n" {
		t.Errorf("table: %q", table.out)
	}
}

func TestVerifyFindsEveryKindOfDifference(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newRepo(t, branches(10)...)
	w.importing(t, r, exit.OK)
	moved := r.set(t, "refs/heads/b00003")
	git(t, r.path, "update-ref", "-d", "refs/heads/b00000")
	r.set(t, "refs/heads/zzz")
	w.InsertRef(t, "p", "refs/heads/aaa", refdb.Value(id("a")))
	w.InsertRef(t, "p", "refs/heads/b00009", refdb.Deleted)
	w.InsertRef(t, "p", "refs/heads/deleted-everywhere", refdb.Deleted)
	got := w.verifying(t, r, exit.Failed)
	if got.counts() != "7 2 2 1 0 0" {
		t.Errorf("counts: %s", got.counts())
	}
	var all []string
	for _, d := range got.Differences {
		all = append(all, d.Result+" "+strings.TrimPrefix(d.Ref, "refs/heads/"))
	}
	if s := strings.Join(all, ", "); s != "global_only aaa, global_only b00000, different b00003, local_only b00009, local_only zzz" {
		t.Errorf("differences: %s", s)
	}
	if d := got.Differences[2]; *d.Local != moved || *d.Global != r.commit {
		t.Errorf("different: %+v", d)
	}
	text := w.run(t, "refs", "verify", "p", "--repo", r.path)
	text.is(t, exit.Failed, "p: local and global differ: 7 equal, 2 local only, 2 global only, 1 different")
	text.isOneLine(t)
	if strings.Count(text.out, "\n") != 6 {
		t.Errorf("table:\n%s", text.out)
	}
}

func TestNastyNamesAreImportedAndCompared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newRepo(t, "refs/heads/o'brien", "refs/heads/größe", "refs/heads/日本", `refs/heads/"quoted"`, "refs/heads/a,b;c", "refs/heads/%00",
		"refs/heads/"+strings.Repeat("long/", 100)+"end", "refs/heads/\u202ertl", "refs/heads/-dash", "refs/x", "refs/heads/a", "refs/heads/a-b", "refs/heads/c/b")
	if got := w.importing(t, r, exit.OK); got.counts() != "13 0 0 0 0 0 0" {
		t.Errorf("import: %+v", got)
	}
	if got := w.verifying(t, r, exit.OK); got.counts() != "13 0 0 0 0 0" {
		t.Errorf("verify: %+v", got)
	}
}

func TestSymbolicRefs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newRepo(t, mainRef)
	git(t, r.path, "symbolic-ref", "refs/heads/alias", mainRef)
	w.importing(t, r, exit.OK)
	if got := w.do(t, "refs", "get", "p", "refs/heads/alias"); got != "ref: "+mainRef+"\n" {
		t.Errorf("symbolic ref: %q", got)
	}
	w.verifying(t, r, exit.OK)
}

func TestASHA256Repository(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newRepo(t)
	git(t, "", "init", "--quiet", "--bare", "--object-format=sha256", r.path+"256")
	r.path += "256"
	tree := git(t, r.path, "hash-object", "-t", "tree", "-w", "/dev/null")
	r.commit = git(t, r.path, "-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", "x", tree)
	git(t, r.path, "update-ref", mainRef, r.commit)
	w.importing(t, r, exit.OK)
	w.verifying(t, r, exit.OK)
	if got := w.do(t, "refs", "get", "p", mainRef); len(got) != 65 {
		t.Errorf("got %q", got)
	}
}

func TestWhatGerritKeepsOutIsSkippedOnBothSides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newRepo(t, mainRef, "refs/changes/01/1/1", "refs/changes/01/1/meta", "refs/cache-automerge/ab/cd", "refs/draft-comments/01/1/5", "refs/multi-site/version")
	w.InsertRef(t, "p", "refs/multi-site/version", "1795224671380")
	w.InsertRef(t, "p", "refs/changes/02/2/1", refdb.Value(id("b")))
	if got := w.importing(t, r, exit.OK); got.counts() != "2 0 0 0 0 0 4" {
		t.Errorf("import: %s", got.counts())
	}
	if got := w.verifying(t, r, exit.OK); got.counts() != "2 0 0 0 4 0" {
		t.Errorf("verify: %s", got.counts())
	}
	if got := w.verifying(t, r, exit.Failed, "--all"); got.counts() != "2 4 1 1 0 0" {
		t.Errorf("verify --all: %s", got.counts())
	}
	if got := w.importing(t, r, exit.Mismatch, "--all"); got.counts() != "4 0 2 1 0 0 0" {
		t.Errorf("import --all: %s", got.counts())
	}
	if got := w.do(t, "refs", "get", "p", "HEAD"); got != "ref: "+mainRef+"\n" {
		t.Errorf("HEAD: %q", got)
	}
}

func TestADifferentValueIsLeftAloneUnlessTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newRepo(t, branches(20)...)
	w.InsertRef(t, "p", "refs/heads/b00005", refdb.Value(id("a")))
	w.InsertRef(t, "p", "refs/heads/b00006", refdb.Deleted)
	w.InsertRef(t, "p", "refs/heads/b00007", refdb.Value(r.commit))
	got := w.importing(t, r, exit.Mismatch)
	if got.counts() != "17 0 1 2 0 0 0" || len(got.Problems) != 2 {
		t.Fatalf("%+v", got)
	}
	if p := got.Problems[0]; p.Result != "different" || p.Ref != "refs/heads/b00005" || *p.Local != r.commit || *p.Global != id("a") {
		t.Errorf("%+v", p)
	}
	if p := got.Problems[1]; p.Ref != "refs/heads/b00006" || p.Detail != "was deleted in the database" {
		t.Errorf("%+v", p)
	}
	text := w.run(t, "refs", "import", "p", "--repo", r.path)
	text.is(t, exit.Mismatch, "--overwrite")
	text.isOneLine(t)
	if got := w.importing(t, r, exit.OK, "--overwrite", "--dry-run"); got.counts() != "0 2 18 0 0 0 0" {
		t.Errorf("dry run: %+v", got)
	}
	if got := w.importing(t, r, exit.OK, "--overwrite", "--yes"); got.counts() != "0 2 18 0 0 0 0" {
		t.Errorf("overwrite: %+v", got)
	}
	w.verifying(t, r, exit.OK)
}

func TestALockedRefDoesNotStopItsNeighbours(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newRepo(t, branches(20)...)
	lock, err := w.open(t).TryLock(t.Context(), "p", "refs/heads/b00003", "refs/heads/b00004")
	if err != nil {
		t.Fatal(err)
	}
	w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: "refs/heads/b00005", Owner: "o", Age: time.Hour})
	got := w.importing(t, r, exit.Locked)
	if got.counts() != "18 0 0 0 2 0 0" || len(got.Problems) != 2 || !strings.Contains(got.Problems[0].Detail, lock.Owner()) {
		t.Errorf("%+v", got)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.importing(t, r, exit.OK); got.counts() != "2 0 18 0 0 0 0" {
		t.Errorf("%+v", got)
	}
}

func TestARefThatGitCouldNotHoldBesideOneInTheDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newRepo(t, append(branches(20), "refs/heads/above", "refs/heads/below/x", "refs/heads/intended")...)
	w.InsertRef(t, "p", "refs/heads/above/x", refdb.Value(id("a")))
	w.InsertRef(t, "p", "refs/heads/b00005/x", refdb.Deleted)
	w.InsertRef(t, "p", "refs/heads/below", refdb.Value(id("a")))
	db := w.open(t)
	pending, err := db.Intents().Prepare(t.Context(), "p", []refdb.Update{{Ref: "refs/heads/intended/x", New: refdb.Value(id("a"))}}, "agent")
	if err != nil {
		t.Fatal(err)
	}
	got := w.importing(t, r, exit.Locked)
	if got.counts() != "20 0 0 0 1 2 0" || len(got.Problems) != 3 {
		t.Fatalf("%+v", got)
	}
	for _, p := range got.Problems {
		want := map[string][2]string{
			"refs/heads/above":    {"refused", "beside refs/heads/above/x"},
			"refs/heads/below/x":  {"refused", "beside refs/heads/below"},
			"refs/heads/intended": {"locked", "beside refs/heads/intended/x"},
		}[p.Ref]
		if p.Result != want[0] || !strings.Contains(p.Detail, want[1]) {
			t.Errorf("%+v", p)
		}
	}
	// What the messages say to do.
	if err := db.Intents().Finish(t.Context(), pending, nil, []string{"refs/heads/intended/x"}); err != nil {
		t.Fatal(err)
	}
	for _, p := range got.Problems {
		if _, command, ok := strings.Cut(p.Detail, "run refdbctl "); ok {
			command, _, _ = strings.Cut(command, ", and import")
			w.run(t, strings.Fields(command)...).is(t, exit.OK, "")
		}
	}
	if got := w.importing(t, r, exit.OK); got.counts() != "3 0 20 0 0 0 0" {
		t.Errorf("%+v", got)
	}
}

func TestWhatCannotBeStoredIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newRepo(t, mainRef, "refs/heads/not-utf8-\xff", "refs/heads/"+strings.Repeat("long/", 500)+"end")
	for name, text := range map[string]string{"broken": "garbage", "two..dots": r.commit} {
		if err := os.WriteFile(filepath.Join(r.path, "refs/heads", name), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := w.importing(t, r, exit.Failed)
	if got.counts() != "1 0 0 0 0 4 0" || got.InvalidNames != 2 || len(got.Problems) != 4 {
		t.Errorf("%+v", got)
	}
	text := w.run(t, "refs", "import", "p", "--repo", r.path)
	if text.is(t, exit.Failed, "4 refused, 2 of them for their names"); !strings.Contains(text.out, `not-utf8-\xff`) ||
		!strings.Contains(text.out, "refs/heads/two..dots") {
		t.Errorf("%s", text.out)
	}
	// --skip-invalid-names does not cover refs that git can't read.
	w.run(t, "refs", "import", "p", "--repo", r.path, "--skip-invalid-names").is(t, exit.Failed, "4 refused")
	if got := w.verifying(t, r, exit.Failed); got.counts() != "1 2 0 0 0 2" {
		t.Errorf("%s", got.counts())
	}
	for _, name := range []string{"broken", "two..dots"} {
		if err := os.Remove(filepath.Join(r.path, "refs/heads", name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.importing(t, r, exit.Failed); got.counts() != "0 0 1 0 0 2 0" || got.InvalidNames != 2 {
		t.Errorf("%+v", got)
	}
	if got := w.importing(t, r, exit.OK, "--skip-invalid-names"); got.counts() != "0 0 1 0 0 2 0" || got.InvalidNames != 2 || len(got.Problems) != 2 {
		t.Errorf("%+v", got)
	}
	// Such refs can't be in the database either, so --prune does not take them for deleted.
	w.importing(t, r, exit.OK, "--skip-invalid-names", "--prune", "--yes")
	w.run(t, "refs", "import", "p", "--repo", r.path, "--prune", "--yes").is(t, exit.Failed, "nothing was pruned")
}
