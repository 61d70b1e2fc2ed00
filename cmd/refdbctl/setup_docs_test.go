package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// documentedSetup returns the indented lines of the set-up of PostgreSQL in docs/OPERATIONS.md, up to the settings.
func documentedSetup(t *testing.T) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Set-up: PostgreSQL\n")
	section, _, _ = strings.Cut(section, "`refdbctl doctor` checks these settings")
	for line := range strings.Lines(section) {
		if sql, indented := strings.CutPrefix(line, "    "); indented {
			lines = append(lines, strings.TrimSpace(sql))
		}
	}
	if len(lines) < 20 {
		t.Fatalf("only %d lines were found", len(lines))
	}
	return lines
}

// The documented set-up is run as it is written, by a superuser. Then each role can do what it is for, and no other role of the server
// can connect.
func TestTheDocumentedSetUpGivesEachRoleWhatItNeeds(t *testing.T) {
	t.Parallel()
	some := dbtest.Postgres(t)
	admin, err := url.Parse(some.URL())
	if err != nil {
		t.Fatal(err)
	}
	suffix := strings.ReplaceAll(strings.TrimPrefix(admin.Path, "/"), "test", "")
	names := strings.NewReplacer("refdb_owner", "owner"+suffix, "refdb_site", "site"+suffix, "refdb_locks", "locks"+suffix,
		"refdb_eu", "eu"+suffix, "refdb_us", "us"+suffix, "DATABASE refdb ", "DATABASE refdb"+suffix+" ", `\c refdb`, `\c refdb`+suffix)
	at := func(role string) string {
		u := *admin
		u.Path = "/refdb" + suffix
		if role != "" {
			u.User = url.User(role + suffix)
		}
		return u.String()
	}
	t.Cleanup(func() {
		some.Exec(t, `DROP DATABASE IF EXISTS refdb`+suffix+` WITH (FORCE)`)
		for _, role := range []string{"owner", "site", "locks", "stranger"} {
			some.Exec(t, `DROP ROLE IF EXISTS `+role+suffix)
		}
	})
	to := some.URL()
	for _, line := range documentedSetup(t) {
		if command, is := strings.CutPrefix(line, "refdbctl --db postgres://refdb_owner@db/refdb "); is {
			owner := &world{env: map[string]string{"REFDB_URL": at("owner")}}
			owner.do(t, strings.Fields(command)...)
			continue
		}
		line = names.Replace(line)
		if strings.HasPrefix(line, `\c `) {
			to = at("")
			continue
		}
		execOnce(t, to, line)
	}

	run := func(role string, args ...string) result {
		w := &world{env: map[string]string{"REFDB_URL": at(role), "REFDB_SITE": "eu-1"}}
		return w.run(t, args...)
	}
	one := id("a")
	for _, row := range []struct {
		role, command string
		code          int
		says          string
	}{
		{"site", "refs put p refs/heads/main " + one + " --old none", exit.OK, ""},
		{"site", "lock p refs/heads/main -- true", exit.OK, ""},
		{"site", "project list", exit.OK, ""},
		{"site", "project remove p --yes", exit.OK, ""},
		{"site", "recover --reason test --yes", exit.Failed, "nothing was done: recover needs the owner of the tables, not the role site" + suffix + ": name owner" + suffix},
		{"site", "history prune --older-than 90d --yes", exit.Failed, "nothing was done: history prune needs the owner of the tables"},
		{"site", "migrate down --yes", exit.Failed, "nothing was changed: migrate needs the owner of the tables"},
		{"locks", "lock p refs/heads/main -- true", exit.OK, ""},
		{"locks", "lock p --shared indexes -- true", exit.OK, ""},
		{"locks", "lock p --exclusive indexes -- true", exit.OK, ""},
		{"locks", "refs put p refs/heads/main " + one + " --old none", exit.Failed, ""},
		{"owner", "recover --reason test --yes", exit.OK, "nothing is to be recovered"},
		{"owner", "history prune --older-than 90d --yes", exit.OK, ""},
	} {
		if r := run(row.role, strings.Fields(row.command)...); r.code != row.code || !strings.Contains(r.out+r.err, row.says) {
			t.Errorf("%s: %s: status %d: %s%s", row.role, row.command, r.code, r.out, r.err)
		}
	}
	d := decode[doctorJSON](t, run("site", "doctor", "-o", "json").out)
	for _, name := range []string{"privileges", "connect privilege"} {
		if d.status(name) != checkOK {
			t.Errorf("%s: %s", name, d.detail(name))
		}
	}
	execOnce(t, some.URL(), `CREATE ROLE stranger`+suffix+` LOGIN`)
	if r := run("stranger", "locks", "list"); r.code == exit.OK || !strings.Contains(r.err, "permission denied for database") {
		t.Errorf("another role of the server: status %d: %s%s", r.code, r.out, r.err)
	}
}

func execOnce(t *testing.T, address, sql string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Each of the grants of the role that only takes locks is needed.
func TestARoleThatOnlyTakesLocksHasTheFewestGrants(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	role, address := db.Role(t, "refdb_locks")
	w := &world{Database: db, env: map[string]string{"REFDB_URL": address, "REFDB_SITE": "here"}}
	// A lock that is not released stays, so each run has a project of its own.
	runs := 0
	work := func() (all result) {
		runs++
		p := fmt.Sprint("p", runs)
		// A lock that was left behind is taken over.
		db.InsertLock(t, refdb.LockInfo{Project: p, Ref: "refs/heads/b", Owner: "dead/1", Age: time.Hour})
		for _, command := range []string{"refs/heads/main", "refs/heads/a refs/heads/b", "--shared indexes"} {
			r := w.run(t, append(strings.Fields("lock "+p+" "+command), "--", "true")...)
			all.code, all.err = max(all.code, r.code), all.err+r.err
			if r.code != exit.OK {
				break
			}
		}
		return all
	}
	if r := work(); r.code != exit.OK {
		t.Fatalf("with all of them: %s", r.err)
	}
	for _, grant := range dbtest.Grants(t, "refdb_locks") {
		privileges, on, _ := strings.Cut(strings.TrimPrefix(grant, "GRANT "), " ON ")
		tables, _, _ := strings.Cut(on, " TO ")
		if strings.HasPrefix(tables, "DATABASE") || strings.HasPrefix(tables, "SCHEMA") {
			continue
		}
		for _, table := range strings.Split(tables, ", ") {
			for _, privilege := range strings.Split(privileges, ", ") {
				db.Exec(t, `REVOKE `+privilege+` ON `+table+` FROM `+role)
				r := work()
				refused := strings.Contains(r.err, "lacks a privilege") || strings.Contains(r.err, " may not read the tables")
				if r.code == exit.OK || !refused {
					t.Errorf("%s ON %s is not needed: status %d: %s", privilege, table, r.code, r.err)
				}
				db.Exec(t, `GRANT `+privilege+` ON `+table+` TO `+role)
			}
		}
	}
}

// A role keeps the rights that it needs in both directions of the step.
func TestASitesRoleWorksWithTheSchemaBeforeAndAfterTheStep(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	_, address := db.Role(t, "refdb_site")
	owner, site := &world{env: map[string]string{"REFDB_URL": db.URL()}}, &world{env: map[string]string{"REFDB_URL": address}}
	for i, step := range [][]string{{"down", "--yes"}, {"up"}} {
		owner.do(t, append([]string{"migrate"}, step...)...)
		site.do(t, "refs", "put", "p", fmt.Sprint("refs/heads/", i), id("a"), "--old=none")
		site.do(t, "project", "remove", "p", "--yes", "--reason=test")
		if d := decode[doctorJSON](t, site.run(t, "doctor", "-o", "json").out); d.status("privileges") != checkOK || d.status("tables") != checkOK {
			t.Errorf("after migrate %s: %+v", step[0], d)
		}
	}
}
