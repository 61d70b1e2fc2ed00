package gitrepo_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

func TestAMoveIsMadeFromItsOldValueOnly(t *testing.T) {
	t.Parallel()
	const ref = "refs/heads/moved"
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			dir, first := newRepo(t, "--object-format="+format)
			tree := git(t, dir, "rev-parse", first+"^{tree}")
			second := git(t, dir, "-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", "y", "-p", first, tree)
			repo := openDir(t, dir)
			for _, step := range []struct {
				name      string
				move      gitrepo.Move
				refused   bool
				holdsThen string
			}{
				{"create", gitrepo.Move{Ref: ref, To: first}, false, first},
				{"create again", gitrepo.Move{Ref: ref, To: second}, true, first},
				{"from another value", gitrepo.Move{Ref: ref, From: second, To: first}, true, first},
				{"move", gitrepo.Move{Ref: ref, From: first, To: second}, false, second},
				{"delete from another value", gitrepo.Move{Ref: ref, From: first}, true, second},
				{"delete", gitrepo.Move{Ref: ref, From: second}, false, ""},
			} {
				if err := repo.MoveRefs(t.Context(), []gitrepo.Move{step.move}, gitrepo.Unhooked{Message: "test"}); (err != nil) != step.refused {
					t.Fatalf("%s: %v", step.name, err)
				}
				cmd := exec.Command("git", "rev-parse", "--quiet", "--verify", ref)
				cmd.Dir = dir
				out, _ := cmd.Output()
				if got := string(out); got != step.holdsThen && got != step.holdsThen+"\n" {
					t.Fatalf("%s: the ref holds %q, want %q", step.name, got, step.holdsThen)
				}
			}
		})
	}
}

// Push and follower would wait for each other. In a reftable, all refs have one lock.
func TestAMoveDoesNotWaitForALockFile(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, file string
		move       gitrepo.Move
		all        bool
	}{
		{"of the ref", "refs/heads/x.lock", gitrepo.Move{Ref: "refs/heads/x"}, false},
		{"of packed-refs", "packed-refs.lock", gitrepo.Move{Ref: "refs/heads/x"}, true},
		{"of another ref", "refs/heads/y.lock", gitrepo.Move{Ref: "refs/heads/y"}, false},
		{"of a branch of that name", "refs/heads/packed-refs.lock", gitrepo.Move{Ref: "refs/heads/packed-refs"}, false},
		{"of a reftable", "reftable/tables.list.lock", gitrepo.Move{Ref: "refs/heads/x"}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var options []string
			if row.file == "reftable/tables.list.lock" {
				if options = []string{"--ref-format=reftable"}; exec.Command("git", "init", "--quiet", "--bare", options[0], filepath.Join(t.TempDir(), "r")).Run() != nil {
					t.Skip("left out: this git has no reftables")
				}
			}
			dir, id := newRepo(t, options...)
			for _, ref := range []string{"refs/heads/x", "refs/heads/y", "refs/heads/packed-refs"} {
				git(t, dir, "update-ref", ref, id)
			}
			for _, timeout := range []string{"core.filesRefLockTimeout", "core.packedRefsTimeout", "reftable.lockTimeout"} {
				git(t, dir, "config", timeout, "-1") // for ever
			}
			repo := openDir(t, dir)
			if err := os.WriteFile(filepath.Join(repo.Dir(), row.file), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			row.move.From = id
			err := repo.MoveRefs(t.Context(), []gitrepo.Move{row.move, {Ref: "refs/heads/new", To: id}}, gitrepo.Unhooked{})
			refused := (*gitrepo.RefusedError)(nil)
			if !errors.As(err, &refused) || !refused.Locked || refused.AllLocked != row.all {
				t.Errorf("%+v", err)
			}
			err = repo.MoveRefs(t.Context(), []gitrepo.Move{{Ref: "refs/heads/z", From: id, To: id}}, gitrepo.Unhooked{})
			if !errors.As(err, &refused) || refused.Locked != (row.file == "reftable/tables.list.lock") {
				t.Errorf("a ref that has another value: %+v", err)
			}
		})
	}
}

// HEAD has no claim, so that nobody who has its lock file waits for git. A push to the branch that
// HEAD points to has it for a moment.
func TestHEADsLockFileIsWaitedForButNotForEver(t *testing.T) {
	t.Parallel()
	dir, _ := newRepo(t)
	for _, timeout := range []string{"core.filesRefLockTimeout", "reftable.lockTimeout"} {
		git(t, dir, "config", timeout, "-1") // for ever
	}
	repo := openDir(t, dir)
	if err := os.WriteFile(filepath.Join(repo.Dir(), "HEAD.lock"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err := repo.SetHead(t.Context(), "refs/heads/z", gitrepo.Unhooked{})
	refused := (*gitrepo.RefusedError)(nil)
	if !errors.As(err, &refused) || !refused.Locked || refused.AllLocked {
		t.Errorf("%+v", err)
	}
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("git waited %s", took)
	}
}

// Git moves the refs of a transaction one after the other, and may fail in the middle.
func TestATransactionMayFailHalfway(t *testing.T) {
	t.Parallel()
	dir, id := newRepo(t)
	git(t, dir, "config", "core.logAllRefUpdates", "always")
	repo := openDir(t, dir)
	if _, err := os.Stat(filepath.Join(repo.Dir(), "refs")); err != nil {
		t.Skip("left out: refs are in a reftable here, which changes in one step")
	}
	log := filepath.Join(repo.Dir(), "logs/refs/heads/x/in-the-way")
	if err := errors.Join(os.MkdirAll(filepath.Dir(log), 0o755), os.WriteFile(log, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	err := repo.MoveRefs(t.Context(), []gitrepo.Move{{Ref: "refs/heads/a", To: id}, {Ref: "refs/heads/x", To: id}}, gitrepo.Unhooked{})
	if refused := (*gitrepo.RefusedError)(nil); !errors.As(err, &refused) || !refused.Begun {
		t.Errorf("%+v", err)
	}
	if got := git(t, dir, "rev-parse", "refs/heads/a"); got != id {
		t.Errorf("refs/heads/a is %s", got)
	}
}

func TestAMoveRunsNoHook(t *testing.T) {
	t.Parallel()
	dir, id := newRepo(t)
	ran := filepath.Join(t.TempDir(), "ran")
	repo := openDir(t, dir)
	hook := filepath.Join(repo.Dir(), "hooks", "reference-transaction")
	if err := errors.Join(os.MkdirAll(filepath.Dir(hook), 0o755), os.WriteFile(hook, []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"One.of=these", "two"} { // git 2.54 and later run these, too
		git(t, dir, "config", "hook."+name+".event", "reference-transaction")
		git(t, dir, "config", "--add", "hook."+name+".event", "pre-push")
		git(t, dir, "config", "hook."+name+".command", "touch "+ran)
	}
	hooks, err := repo.ConfiguredHooks(t.Context())
	if err != nil || !slices.Equal(hooks, []string{"One.of=these", "two"}) {
		t.Fatalf("configured are %q, %v", hooks, err)
	}
	how := gitrepo.Unhooked{Hooks: hooks}
	if err := repo.MoveRefs(t.Context(), []gitrepo.Move{{Ref: "refs/heads/z", To: id}}, how); err != nil {
		t.Fatal(err)
	}
	if err := repo.SetHead(t.Context(), "refs/heads/z", how); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(ran); err == nil {
		t.Error("a hook was run")
	}
	git(t, dir, "update-ref", "refs/heads/other", id)
	if _, err := os.Lstat(ran); err != nil {
		t.Error("the hook is not one that git runs")
	}
}
