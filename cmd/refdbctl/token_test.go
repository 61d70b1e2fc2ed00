package main

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
)

type tokenJSON struct {
	Token, ID, Subject, Expires, By, Revoked string
	Expired                                  bool
}

type ruleJSON struct{ ID, Subject, Right, Projects, Refs, By string }

func TestATokenIsShownOnceListedAndRevoked(t *testing.T) {
	t.Parallel()
	for name, open := range worlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t)
			made := decode[tokenJSON](t, w.do(t, "token", "create", "ci", "--expires", "30d", "--reason", "deploys", "-o", "json"))
			if !strings.HasPrefix(made.Token, "refdb_") || made.Subject != "ci" || len(made.ID) != 16 {
				t.Errorf("%+v", made)
			}
			plain := w.run(t, "token", "create", "ci", "--expires", "1m")
			if out := strings.TrimSuffix(plain.out, "\n"); !strings.HasPrefix(out, "refdb_") || strings.ContainsAny(out, " \n") || !strings.Contains(plain.err, "not shown again") {
				t.Errorf("%+v", plain)
			}
			w.do(t, "token", "create", "other")
			listed := decode[[]tokenJSON](t, w.do(t, "token", "list", "--subject", "ci", "-o", "json"))
			if len(listed) != 2 || listed[0].Expired || listed[0].Subject != "ci" || !strings.Contains(listed[0].By, "@") {
				t.Errorf("%+v", listed)
			}
			everything := w.do(t, "token", "list", "-o", "json") + w.do(t, "audit", "list", "-o", "json") + w.do(t, "refs", "log", "refdb/sites", "-o", "json")
			for _, secret := range []string{made.Token, strings.TrimSpace(plain.out)} {
				if strings.Contains(everything, strings.TrimPrefix(secret, "refdb_")) {
					t.Error("the token is shown again")
				}
			}
			w.do(t, "token", "revoke", made.ID, "--yes", "--reason", "leaked")
			if r := w.run(t, "token", "revoke", made.ID, "--yes"); r.code != exit.Failed || !strings.Contains(r.err, "no such token") {
				t.Errorf("revoked again: %+v", r)
			}
			if revoked := decode[[]tokenJSON](t, w.do(t, "token", "revoke", "--subject", "ci", "--yes", "-o", "json")); len(revoked) != 1 || revoked[0].Revoked == made.ID {
				t.Errorf("%+v", revoked)
			}
			if left := decode[[]tokenJSON](t, w.do(t, "token", "list", "-o", "json")); len(left) != 1 || left[0].Subject != "other" {
				t.Errorf("%+v", left)
			}
			var actions []string
			for _, e := range w.audit(t) {
				actions = append(actions, e.Action+": "+e.Detail+": "+text(e.Outcome))
			}
			for _, want := range []string{"token create: ci, for 720h0m0s: token " + made.ID, "token revoke: " + made.ID + " of ci: revoked 1 of 1"} {
				if !strings.Contains(strings.Join(actions, "\n"), want) {
					t.Errorf("the audit lacks %q: %q", want, actions)
				}
			}
		})
	}
}

func TestATokenThatIsGivenInsteadOfItsIDIsNotShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := strings.TrimSpace(w.do(t, "token", "create", "ci"))
	for _, given := range []string{secret, "Bearer " + secret, strings.TrimPrefix(secret, "refdb_")} {
		r := w.run(t, "token", "revoke", given, "--yes")
		if r.code != exit.Misuse || strings.Contains(r.out+r.err, strings.TrimPrefix(secret, "refdb_")) {
			t.Errorf("%+v", r)
		}
	}
	if entries := w.audit(t); len(entries) != 1 {
		t.Errorf("the audit has %+v", entries)
	}
}

func TestRulesAreAddedListedAndRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	added := decode[ruleJSON](t, w.do(t, "access", "allow", "ci", "lock", "my/*", "refs/locks/*", "-o", "json"))
	again := w.run(t, "access", "allow", "ci", "lock", "my/*", "refs/locks/*", "-o", "json")
	if decode[ruleJSON](t, again.out).ID != added.ID || !strings.Contains(again.err, "already") {
		t.Errorf("%+v", again)
	}
	w.do(t, "access", "allow", "ci", "write", "other", "*")
	w.do(t, "access", "allow", "dashboard", "read", "*", "*")
	for _, c := range []struct {
		args []string
		want int
	}{{nil, 3}, {[]string{"--subject", "ci"}, 2}, {[]string{"--project", "my/project"}, 2}, {[]string{"--project", "x", "--subject", "ci"}, 0}} {
		got := decode[[]ruleJSON](t, w.do(t, append([]string{"access", "list", "-o", "json"}, c.args...)...))
		if len(got) != c.want {
			t.Errorf("%v: %+v", c.args, got)
		}
	}
	w.do(t, "access", "remove", added.ID, "--reason", "unused")
	if r := w.run(t, "access", "remove", added.ID); r.code != exit.Failed || !strings.Contains(r.err, "no such rule") {
		t.Errorf("%+v", r)
	}
	all := w.audit(t)
	last := all[len(all)-1]
	if last.Action != "access remove" || last.Detail != "ci: lock my/* refs/locks/*" || text(last.Reason) != "unused" || text(last.Outcome) != "done" {
		t.Errorf("%+v", last)
	}
}

func TestInvalidTokensAndRulesAreUsageErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, args := range [][]string{
		{"token", "create", "a/b"},
		{"token", "create", "ci", "--expires", "1s"},
		{"token", "create", "ci", "--expires", "99999d"},
		{"token", "create"},
		{"token", "revoke", "--yes"},
		{"token", "revoke", "ab", "--yes"},
		{"token", "revoke", "0123456789abcdef", "--subject", "ci", "--yes"},
		{"token", "revoke", "0123456789abcdef"},
		{"access", "allow", "ci", "everything", "p", "*"},
		{"access", "allow", "ci", "read", "p", "main"},
		{"access", "allow", "ci", "read", "p"},
		{"access", "allow", "a/b", "read", "p", "*"},
		{"access", "allow", "*", "read", "p", "*"},
		{"token", "create", "*"},
	} {
		if r := w.run(t, args...); r.code != exit.Misuse || r.out != "" {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if entries := w.audit(t); len(entries) != 0 {
		t.Errorf("the audit has %+v", entries)
	}
}
