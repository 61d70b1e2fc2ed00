package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
)

func TestAProjectThatIsNotThereIsAnError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.InsertRef(t, "p", mainRef, refdb.Value(id("a")))
	empty := newRepo(t)
	for _, args := range []string{
		"refs list nope", "refs list nope -o json", "refs list nope --deleted", "project remove nope --yes", "project remove nope --dry-run",
		"refs delete nope --prefix=refs/ --yes", "refs purge-tombstones nope --older-than=90d --yes",
		"refs verify nope --repo " + empty.path,
	} {
		r := w.run(t, strings.Fields(args)...)
		r.is(t, exit.Failed, "no such project: nope")
		r.isOneLine(t)
	}
	for _, args := range []string{"locks list --project=nope", "locks purge --stale --project=nope --yes"} {
		w.run(t, strings.Fields(args)...).is(t, exit.OK, "no such project: nope")
	}
	// One that is there may have nothing to show.
	if r := w.run(t, "refs", "list", "p", "--prefix=refs/tags/"); r.code != exit.OK || r.err != "" {
		t.Errorf("%+v", r)
	}
}

func TestAForcedDeleteOfAnUnknownRefCreatesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.InsertRef(t, "p", mainRef, refdb.Value(id("a")))
	r := w.run(t, "refs", "delete", "p", "refs/heads/nope", "--force")
	r.is(t, exit.Failed, "no such ref: p refs/heads/nope")
	r.isOneLine(t)
	if rows := decode[[]refJSON](t, w.do(t, "refs", "list", "p", "--deleted", "-o", "json")); len(rows) != 1 {
		t.Errorf("there are %+v", rows)
	}
}

type deletedJSON struct{ Result, Project, Ref, Old string }

func TestDeleteByPrefix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, ref := range []string{mainRef, "refs/topic/a", "refs/topic/b", "refs/topics"} {
		w.InsertRef(t, "p", ref, refdb.Value(id("a")))
	}
	w.InsertRef(t, "p", "refs/topic/gone", refdb.Deleted)
	left := func() (names string) {
		for _, ref := range decode[[]refJSON](t, w.do(t, "refs", "list", "p", "-o", "json")) {
			names += ref.Ref + " "
		}
		return names
	}
	dry := decode[[]deletedJSON](t, w.do(t, "refs", "delete", "p", "--prefix=refs/topic/", "--dry-run", "-o", "json"))
	if len(dry) != 2 || dry[0] != (deletedJSON{"would_delete", "p", "refs/topic/a", id("a")}) {
		t.Errorf("dry run: %+v", dry)
	}
	if got := left(); got != mainRef+" refs/topic/a refs/topic/b refs/topics " {
		t.Errorf("the dry run left %s", got)
	}
	w.run(t, "refs", "delete", "p", "--prefix=refs/topic/").is(t, exit.Misuse, "--yes")
	w.run(t, "refs", "delete", "p", "--prefix=refs/topic/", "--yes").is(t, exit.OK, "p: 2 deleted")
	if got := left(); got != mainRef+" refs/topics " {
		t.Errorf("left: %s", got)
	}
	for args, says := range map[string]string{
		"--prefix= --yes":                       "--prefix",
		mainRef + " --prefix=refs/":             "--prefix",
		"--prefix=refs/ --force --yes":          "force prefix",
		mainRef + " --yes --old=" + id("a"):     "--prefix",
		mainRef + " --dry-run --old=" + id("a"): "--prefix",
		"":                                      "--prefix",
	} {
		w.run(t, append([]string{"refs", "delete", "p"}, strings.Fields(args)...)...).is(t, exit.Misuse, says)
	}
}

func TestImportPrunesWhatTheRepositoryDoesNotHave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.InsertRef(t, "p", "refs/heads/gone", refdb.Value(id("b")))
	w.InsertRef(t, "p", "refs/changes/01/1/1", refdb.Value(id("b"))) // left out, as by an import
	r := newRepo(t, branches(3)...)
	if got := w.importing(t, r, exit.OK); got.Pruned != 0 {
		t.Errorf("unasked: %+v", got)
	}
	if got := w.importing(t, r, exit.OK, "--prune", "--dry-run"); got.Pruned != 1 {
		t.Errorf("dry run: %+v", got)
	}
	w.do(t, "refs", "get", "p", "refs/heads/gone")
	w.run(t, "refs", "import", "p", "--repo", r.path, "--prune").is(t, exit.Misuse, "--yes")
	if got := w.importing(t, r, exit.OK, "--prune", "--yes"); got.Pruned != 1 || got.Equal != 3 {
		t.Errorf("%+v", got)
	}
	w.run(t, "refs", "get", "p", "refs/heads/gone").is(t, exit.Failed, "was deleted")
	w.do(t, "refs", "get", "p", "refs/changes/01/1/1")
	w.verifying(t, r, exit.OK)
}

func TestARefThatGitCannotReadIsNotTakenForDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newRepo(t, mainRef)
	w.InsertRef(t, "p", "refs/heads/broken", refdb.Value(r.commit))
	if err := os.WriteFile(filepath.Join(r.path, "refs/heads/broken"), []byte("garbage\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.run(t, "refs", "import", "p", "--repo", r.path, "--prune", "--yes").is(t, exit.Failed, "nothing was pruned")
	w.do(t, "refs", "get", "p", "refs/heads/broken")
}
