package server_test

import (
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
)

// place adds a project's row, from which sites learn that they have a repository of the project.
func (r *rig) place(t *testing.T, project, mode, store string) {
	t.Helper()
	p, _, err := r.db.Projects().Get(t.Context(), project)
	if err != nil {
		t.Fatal(err)
	}
	p.Project, p.ID, p.Mode, p.Rules, p.Store = project, "0123456789", mode, "refs/heads/", store
	if _, err := r.db.Projects().Put(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

func TestRefsOfRepositoriesAreChangedByPushesAndAdministratorsOnly(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Write, access.All, access.All)
	r.allow(t, "root", access.Administer, access.All, access.All)
	projects := map[string]string{"enforced": "enforce", "logged": "log", "compared": "comparing"}
	for project, mode := range projects {
		r.place(t, project, mode, "")
	}
	r.place(t, "stored", "enforce", "all")
	projects["stored"] = "enforce"
	s := r.serve(t, server.DefaultLimits, nil)
	for project := range projects {
		u := moving(mainRef, "", one)
		u.Project = project
		if _, err := s.plain("ci").Update(t.Context(), connect.NewRequest(u)); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("%s: %v", project, err)
		}
		if got := update(t, s.plain("root"), u); got.GetUpdated() == nil {
			t.Errorf("%s, by an administrator: %v", project, got)
		}
	}
}

func TestRefusalsNameNoRefThatTheSubjectMayNotRead(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Administer, "p", "refs/heads/secret/*")
	r.allow(t, "ci", access.Administer, "p", "refs/heads/hidden/*")
	r.allow(t, "root", access.Administer, "p", access.All)
	r.place(t, "p", "enforce", "")
	r.put(t, "p", "refs/heads/secret", one)
	if _, err := r.db.Intents().Prepare(t.Context(), "p", []refdb.Update{{Ref: "refs/heads/hidden", New: one}}, "pusher"); err != nil {
		t.Fatal(err)
	}
	s := r.serve(t, server.DefaultLimits, nil)
	excluded := moving("refs/heads/secret/x", "", one)
	if _, err := s.plain("ci").Update(t.Context(), connect.NewRequest(excluded)); connect.CodeOf(err) != connect.CodeFailedPrecondition || strings.Contains(err.Error(), "refs/heads/secret") {
		t.Errorf("%v", err)
	}
	if _, err := s.plain("root").Update(t.Context(), connect.NewRequest(excluded)); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "refs/heads/secret") {
		t.Errorf("with the right to read: %v", err)
	}
	pending := moving("refs/heads/hidden/x", "", one)
	if got := update(t, s.plain("ci"), pending).GetLocked(); got == nil || len(got.Holders) != 0 {
		t.Errorf("%v", got)
	}
	if got := update(t, s.plain("root"), pending).GetLocked(); got == nil || len(got.Holders) != 1 || got.Holders[0].Ref != "refs/heads/hidden" {
		t.Errorf("with the right to read: %v", got)
	}
}

func TestRowsOfLeasesCanNotBeLocked(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "root", access.Administer, access.All, access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	l, err := lease.Acquire(t.Context(), r.db, "p", "nightly build", lease.Shared)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release(t.Context())
	for _, ref := range []string{l.Ref(), l.Ref() + "x", l.Ref()[:strings.LastIndex(l.Ref(), "/")] + "/turn"} {
		if status, text := s.post(t, r.tokens["root"], "Acquire", `{"project":"p","refs":["`+ref+`"],"leaseTime":"10s"}`); status != http.StatusBadRequest || !strings.Contains(text, "leases") {
			t.Errorf("%s: %d %s", ref, status, text)
		}
	}
}
