package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// The commands that fail without a privilege are those that the doctor names.
func TestDoctorNamesTheCommandsThatAMissingPrivilegeStops(t *testing.T) {
	t.Parallel()
	const intended = "refs/heads/intended"
	commands := map[string]string{
		"refs list":               "refs list p",
		"project list":            "project list",
		"refs put":                "refs put p refs/heads/new " + id("b") + " --old=none",
		"refs purge-tombstones":   "refs purge-tombstones p --older-than=1d --yes",
		"refs log":                "refs log p",
		"refs rollback":           "refs rollback p refs/heads/moved --yes",
		"history stats":           "history stats",
		"followers list":          "followers list",
		"followers remove":        "followers remove mirror --yes",
		"project remove":          "project remove q --yes",
		"locks list":              "locks list",
		"locks purge":             "locks purge p refs/heads/locked --force --yes",
		"locks resolve":           "locks resolve p " + intended + " --take-new --reason=test --force --yes",
		"lock":                    "lock p refs/heads/free -- true",
		"audit list":              "audit list",
		"recover":                 "recover --status",
		"top":                     "top",
		"project show":            "project show s",
		"project set":             "project set s --ref=refs/heads/*",
		"project set --mirror-at": "project set s --mirror-at=here",
		"sites retire":            "sites retire gone --yes --reason=test",
	}
	several := []string{"project remove", "project set", "project set --mirror-at", "sites retire"} // steps: it is all or nothing
	needed := map[string]string{"refs": "SELECT; INSERT; UPDATE; DELETE", "locks": "SELECT; INSERT; UPDATE; DELETE", "token_origin": "SELECT; UPDATE",
		"intents":  "SELECT; INSERT; UPDATE (decision, decided_by, reason, decided_at); DELETE",
		"projects": "SELECT; INSERT; UPDATE", "audit": "SELECT; INSERT; UPDATE (outcome, ended)",
		"history": "SELECT", "history_state": "SELECT", "epochs": "SELECT", "followers": "SELECT; INSERT; UPDATE; DELETE",
		"admission": "SELECT; UPDATE", "witnesses": "SELECT; INSERT; UPDATE", "lost": "SELECT; INSERT; UPDATE (move)",
		"packs": "SELECT; INSERT; UPDATE; DELETE", "pack_parts": "SELECT; INSERT; DELETE", "site_roles": "SELECT"}
	for i, table := range slices.Sorted(maps.Keys(needed)) {
		privileges := strings.Split(needed[table], "; ")
		for k, privilege := range privileges {
			t.Run(privilege+" on "+table, func(t *testing.T) {
				if testing.Short() && (i%3 != 1 || k != i%len(privileges)) { // of each kind of privilege one is left
					t.Skip("left out by -short: all privileges but one on every third table; make test-all runs them")
				}
				t.Parallel()
				db := dbtest.Postgres(t)
				w := &world{Database: db, env: map[string]string{"REFDB_URL": db.URL()}}
				w.InsertRef(t, "p", mainRef, refdb.Value(id("a")))
				w.InsertRef(t, "p", "refs/heads/gone", refdb.Deleted)
				w.Exec(t, `UPDATE refs SET time = time - interval '2 days' WHERE ref = 'refs/heads/gone'`)
				w.InsertRef(t, "p", "refs/heads/moved", refdb.Value(id("a")))
				w.Exec(t, `DELETE FROM refs WHERE ref = 'refs/heads/moved'`)
				w.Exec(t, `INSERT INTO followers (name, cursor, read, seen) VALUES ('mirror', '', 0, now())`)
				w.InsertRef(t, "q", mainRef, refdb.Value(id("a")))
				w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: "refs/heads/locked", Owner: "o", Age: time.Hour})
				w.prepare(t, "there", "p", refdb.Update{Ref: intended, New: refdb.Value(id("c"))})
				w.Exec(t, `INSERT INTO projects (project, id, rules, mode, revision, time, op) VALUES ('s', 'id', 'ref *', 'enforce', 1, now(), 'id')`)
				w.InsertRef(t, presence.Project, "refs/sites/gone", "generation")
				w.InsertRef(t, presence.Project, "refs/sites/here", "generation")
				role, address := db.Role(t, "refdb_site")
				w.Exec(t, `REVOKE `+privilege+` ON `+table+` FROM `+role)
				w.env["REFDB_URL"] = address
				d := decode[doctorJSON](t, w.run(t, "doctor", "-o", "json").out)
				named, grants, _ := strings.Cut(strings.TrimPrefix(d.detail("privileges"), "too few for a site, and for refdbctl "), "; ")
				if d.status("privileges") != checkFail || !strings.Contains(grants, "GRANT "+privilege+" ON "+table+" TO ") {
					t.Errorf("%+v", d)
				}
				for name, args := range commands {
					r := w.run(t, strings.Fields(args)...)
					if stops := slices.Contains(strings.Split(named, ", "), name); stops != (r.code != exit.OK) || stops && !strings.Contains(r.err, "grant it") && !strings.Contains(r.err, "GRANT "+privilege+" ON "+table) {
						t.Errorf("%s: status %d: %s; doctor says %q", name, r.code, r.err, named)
					}
					if r.code != exit.OK && slices.Contains(several, name) && !strings.Contains(r.err, "nothing was done: ") {
						t.Errorf("%s: status %d, after some steps: %s", name, r.code, r.err)
					}
				}
			})
		}
	}
}
