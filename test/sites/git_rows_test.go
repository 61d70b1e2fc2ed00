//go:build linux

package sites

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A hookRow is what git calls the reference-transaction hook with.
type hookRow struct {
	name  string
	ready func(s *stage) // prepares, without hooks
	do    func(s *stage) // is watched
	older string         // git 2.39 and earlier
	newer string         // 2.51 and later; "" if that is the same
	table string         // newer, reftable; "" if that is the same
}

// A stage is a repository with a recording hook, and a client's history.
type stage struct {
	testing.TB
	g    *git
	h    *history
	repo string
}

// withoutHooks runs git in the repository without hooks.
func (s *stage) withoutHooks(args ...string) {
	s.Helper()
	s.g.run(s, s.repo, append([]string{"-c", "core.hooksPath=/dev/null"}, args...)...)
}

func (s *stage) has(value string, refs ...string) {
	s.Helper()
	for _, ref := range refs {
		s.withoutHooks("update-ref", ref, value)
	}
}

func (s *stage) push(args ...string) {
	s.Helper()
	s.g.run(s, s.h.dir, append([]string{"push", "--quiet", s.repo}, args...)...)
}

// tryPush is for a push that git refuses in part.
func (s *stage) tryPush(args ...string) {
	s.Helper()
	if _, err := s.g.try(s.h.dir, append([]string{"push", "--quiet", s.repo}, args...)...); err == nil {
		s.Errorf("git push %q succeeded", args)
	}
}

func (s *stage) here(args ...string) {
	s.Helper()
	s.g.run(s, s.repo, args...)
}

var hookRows = []hookRow{
	{
		name:  "create a branch",
		do:    func(s *stage) { s.push(s.h.a + ":refs/heads/x") },
		older: "prepared 0 A refs/heads/x; committed 0 A refs/heads/x",
	},
	{
		name:  "create a tag",
		do:    func(s *stage) { s.push(s.h.tag + ":refs/tags/x") },
		older: "prepared 0 T refs/tags/x; committed 0 T refs/tags/x",
	},
	{
		name:  "push for review",
		do:    func(s *stage) { s.push(s.h.a + ":refs/for/main") },
		older: "prepared 0 A refs/for/main; committed 0 A refs/for/main",
	},
	{
		name:  "fast-forward",
		ready: func(s *stage) { s.has(s.h.a, "refs/heads/x") },
		do:    func(s *stage) { s.push(s.h.b + ":refs/heads/x") },
		older: "prepared A B refs/heads/x; committed A B refs/heads/x",
	},
	{
		name:  "force",
		ready: func(s *stage) { s.has(s.h.b, "refs/heads/x") },
		do:    func(s *stage) { s.push("+" + s.h.c + ":refs/heads/x") },
		older: "prepared B C refs/heads/x; committed B C refs/heads/x",
	},
	{
		name:  "the branch that HEAD points to",
		ready: func(s *stage) { s.has(s.h.a, "refs/heads/main") },
		do:    func(s *stage) { s.push(s.h.b + ":refs/heads/main") },
		older: "prepared A B refs/heads/main, A B HEAD; committed A B refs/heads/main, A B HEAD",
		newer: "prepared A B refs/heads/main; committed A B refs/heads/main",
	},
	{
		name: "to a symref",
		ready: func(s *stage) {
			s.has(s.h.a, "refs/heads/main")
			s.withoutHooks("symbolic-ref", "refs/heads/sym", "refs/heads/main")
		},
		do: func(s *stage) { s.push(s.h.b + ":refs/heads/sym") },
		older: "prepared A B refs/heads/sym, A B refs/heads/main, A B HEAD; " +
			"committed A B refs/heads/sym, A B refs/heads/main, A B HEAD",
		newer: "prepared A B refs/heads/main; committed A B refs/heads/main",
	},
	{
		name:  "delete, loose",
		ready: func(s *stage) { s.has(s.h.a, "refs/heads/x") },
		do:    func(s *stage) { s.push(":refs/heads/x") },
		older: "aborted 0 0 refs/heads/x; prepared A 0 refs/heads/x; committed A 0 refs/heads/x",
		table: "prepared A 0 refs/heads/x; committed A 0 refs/heads/x",
	},
	{
		name: "delete, packed",
		ready: func(s *stage) {
			s.has(s.h.a, "refs/heads/x")
			s.withoutHooks("pack-refs", "--all")
		},
		do: func(s *stage) { s.push(":refs/heads/x") },
		older: "prepared 0 0 refs/heads/x; prepared A 0 refs/heads/x; " +
			"committed 0 0 refs/heads/x; committed A 0 refs/heads/x",
		table: "prepared A 0 refs/heads/x; committed A 0 refs/heads/x",
	},
	{
		name: "delete, loose and packed",
		ready: func(s *stage) {
			s.has(s.h.a, "refs/heads/x")
			s.withoutHooks("pack-refs", "--all")
			s.has(s.h.b, "refs/heads/x")
		},
		do: func(s *stage) { s.push(":refs/heads/x") },
		older: "prepared 0 0 refs/heads/x; prepared B 0 refs/heads/x; " +
			"committed 0 0 refs/heads/x; committed B 0 refs/heads/x",
		table: "prepared B 0 refs/heads/x; committed B 0 refs/heads/x",
	},
	{
		name: "several refs",
		do:   func(s *stage) { s.push(s.h.a+":refs/heads/x", s.h.a+":refs/heads/y") },
		older: "prepared 0 A refs/heads/x; committed 0 A refs/heads/x; " +
			"prepared 0 A refs/heads/y; committed 0 A refs/heads/y",
		newer: "prepared 0 A refs/heads/x, 0 A refs/heads/y; committed 0 A refs/heads/x, 0 A refs/heads/y",
	},
	{
		name:  "several refs, atomic",
		do:    func(s *stage) { s.push("--atomic", s.h.a+":refs/heads/x", s.h.a+":refs/heads/y") },
		older: "prepared 0 A refs/heads/x, 0 A refs/heads/y; committed 0 A refs/heads/x, 0 A refs/heads/y",
	},
	{
		name:  "several refs, one deleted",
		ready: func(s *stage) { s.has(s.h.a, "refs/heads/x", "refs/heads/y") },
		do:    func(s *stage) { s.push(s.h.b+":refs/heads/x", ":refs/heads/y", s.h.a+":refs/heads/z") },
		older: "prepared A B refs/heads/x; committed A B refs/heads/x; " +
			"aborted 0 0 refs/heads/y; prepared A 0 refs/heads/y; committed A 0 refs/heads/y; " +
			"prepared 0 A refs/heads/z; committed 0 A refs/heads/z",
		newer: "aborted 0 0 refs/heads/y; prepared A 0 refs/heads/y; committed A 0 refs/heads/y; " +
			"prepared A B refs/heads/x, 0 A refs/heads/z; committed A B refs/heads/x, 0 A refs/heads/z",
		table: "prepared A 0 refs/heads/y; committed A 0 refs/heads/y; " +
			"prepared A B refs/heads/x, 0 A refs/heads/z; committed A B refs/heads/x, 0 A refs/heads/z",
	},
	{
		name:  "a directory in the way of one of two: told of both, though git rejects it",
		ready: func(s *stage) { s.has(s.h.a, "refs/heads/x") },
		do:    func(s *stage) { s.tryPush(s.h.a+":refs/heads/x/y", s.h.a+":refs/heads/z") },
		older: "prepared 0 A refs/heads/z; committed 0 A refs/heads/z",
		newer: "prepared 0 A refs/heads/x/y, 0 A refs/heads/z; committed 0 A refs/heads/x/y, 0 A refs/heads/z",
	},
	{
		name:  "update-ref without an old value",
		ready: func(s *stage) { s.has(s.h.a, "refs/heads/x") },
		do:    func(s *stage) { s.here("update-ref", "refs/heads/x", s.h.b) },
		older: "prepared 0 B refs/heads/x; committed 0 B refs/heads/x",
	},
	{
		name:  "update-ref -d without an old value",
		ready: func(s *stage) { s.has(s.h.a, "refs/heads/x") },
		do:    func(s *stage) { s.here("update-ref", "-d", "refs/heads/x") },
		older: "aborted 0 0 refs/heads/x; prepared 0 0 refs/heads/x; committed 0 0 refs/heads/x",
		table: "prepared 0 0 refs/heads/x; committed 0 0 refs/heads/x",
	},
	{
		name:  "branch -D, loose",
		ready: func(s *stage) { s.has(s.h.a, "refs/heads/main", "refs/heads/x") },
		do:    func(s *stage) { s.here("branch", "-D", "x") },
		older: "prepared 0 0 refs/heads/x; committed 0 0 refs/heads/x; " +
			"aborted 0 0 refs/heads/x; prepared 0 0 refs/heads/x; committed 0 0 refs/heads/x",
		newer: "aborted 0 0 refs/heads/x; prepared 0 0 refs/heads/x; committed 0 0 refs/heads/x",
		table: "prepared 0 0 refs/heads/x; committed 0 0 refs/heads/x",
	},
	{
		name: "tag -d, packed",
		ready: func(s *stage) {
			s.has(s.h.a, "refs/tags/x")
			s.withoutHooks("pack-refs", "--all")
		},
		do: func(s *stage) { s.here("tag", "-d", "x") },
		older: "prepared 0 0 refs/tags/x; committed 0 0 refs/tags/x; " +
			"aborted 0 0 refs/tags/x; prepared 0 0 refs/tags/x; committed 0 0 refs/tags/x",
		newer: "prepared 0 0 refs/tags/x; prepared 0 0 refs/tags/x; " +
			"committed 0 0 refs/tags/x; committed 0 0 refs/tags/x",
		table: "prepared 0 0 refs/tags/x; committed 0 0 refs/tags/x",
	},
	{
		name:  "fetch --prune",
		ready: func(s *stage) { s.has(s.h.a, "refs/heads/x") },
		do: func(s *stage) {
			s.here("fetch", "--quiet", "--no-tags", "--prune", s.h.dir, "+refs/heads/*:refs/heads/*")
		},
		older: "prepared 0 0 refs/heads/x; committed 0 0 refs/heads/x; " +
			"aborted 0 0 refs/heads/x; prepared 0 0 refs/heads/x; committed 0 0 refs/heads/x",
		newer: "aborted 0 0 refs/heads/x; prepared 0 0 refs/heads/x; committed 0 0 refs/heads/x; prepared; committed",
		table: "prepared 0 0 refs/heads/x; committed 0 0 refs/heads/x; prepared; committed",
	},
	{
		name:  "pack-refs",
		ready: func(s *stage) { s.has(s.h.a, "refs/heads/x") },
		do:    func(s *stage) { s.here("pack-refs", "--all") },
		older: "prepared 0 A refs/heads/x; committed 0 A refs/heads/x; prepared A 0 refs/heads/x; committed A 0 refs/heads/x",
		table: "none",
	},
	{
		name:  "pack-refs with the hooks off",
		ready: func(s *stage) { s.has(s.h.a, "refs/heads/x") },
		do:    func(s *stage) { s.withoutHooks("pack-refs", "--all") },
	},
	{
		name:  "gc",
		ready: func(s *stage) { s.has(s.h.a, "refs/heads/x") },
		do:    func(s *stage) { s.here("gc", "--quiet") },
		older: "prepared 0 A refs/heads/x; committed 0 A refs/heads/x; prepared A 0 refs/heads/x; committed A 0 refs/heads/x",
		table: "none",
	},
	{
		name:  "branch -m shows only the old name's end",
		ready: func(s *stage) { s.has(s.h.a, "refs/heads/x") },
		do:    func(s *stage) { s.here("branch", "-m", "x", "y") },
		older: "aborted 0 0 refs/heads/x; prepared A 0 refs/heads/x; committed A 0 refs/heads/x",
		table: "none",
	},
	{
		name:  "branch -c shows nothing",
		ready: func(s *stage) { s.has(s.h.a, "refs/heads/x") },
		do:    func(s *stage) { s.here("branch", "-c", "x", "y") },
	},
	{
		name:  "symbolic-ref",
		do:    func(s *stage) { s.here("symbolic-ref", "HEAD", "refs/heads/y") },
		newer: "prepared 0 ref:refs/heads/y HEAD; committed 0 ref:refs/heads/y HEAD",
	},
}

// expected returns what this git is known to call, with refs stored that way.
func (r hookRow) expected(newer bool, refs string) string {
	switch {
	case newer && refs == "reftable" && r.table == "none":
		return ""
	case newer && refs == "reftable" && r.table != "":
		return r.table
	case newer && r.newer != "":
		return r.newer
	}
	return r.older
}

func TestGitCallsTheHookAsThisWasBuiltFor(t *testing.T) {
	eachStorage(t, func(t *testing.T, g *git, kind storage) {
		t.Parallel()
		h := newHistory(t, g, kind.objects, 0, 0)
		for i, row := range hookRows {
			t.Run(row.name, func(t *testing.T) {
				s := &stage{t, g, h, filepath.Join(shortDir(t), fmt.Sprint(i, ".git"))}
				g.initBare(t, s.repo, kind)
				s.withoutHooks("fetch", "--quiet", "--no-tags", h.dir, "refs/keep/last")
				s.withoutHooks("fetch", "--quiet", "--no-tags", h.dir, "refs/tags/annotated")
				s.withoutHooks("fetch", "--quiet", "--no-tags", h.dir, h.b, h.c)
				if row.ready != nil {
					row.ready(s)
				}
				r := recordIn(t, h, s.repo, "reference-transaction")
				row.do(s)
				got, preparing := r.take(t)
				newer, known := g.measured()
				switch want := row.expected(newer, kind.refs); {
				case !known && (got == row.older || got == row.newer): // a version in between: either
				case got != want:
					t.Errorf("git says\n\t%s\nand not\n\t%s", got, want)
				}
				if want := g.since(2, 54) && strings.Contains(got, "prepared"); preparing != want {
					t.Errorf("state preparing: %t", preparing)
				}
			})
		}
	})
}
