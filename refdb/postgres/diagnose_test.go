package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

func TestDiagnosesNameARemedy(t *testing.T) {
	healthy := setup{version: "15.1", number: 150001, server: server{version: "PostgreSQL 15.1 on x86_64-pc-linux-gnu"}, fsync: true, fullPages: true, synchronous: "on", isolation: roundtrip.ReadCommitted,
		autovacuum: true, room: 97, clients: 10, hosts: 1, connectsUpTo: 16, tables: "as they should be", intact: true,
		encryption: driver.Diagnosis{Name: "encryption", OK: true, Detail: "TLS 1.3"}}
	for _, row := range []struct {
		name   string
		change func(*setup)
		sick   string // the name of the diagnosis that is not OK, if any
	}{
		{"all is well", func(*setup) {}, ""},
		{"old", func(s *setup) { s.number = 130022 }, "server version"},
		{"no fsync", func(s *setup) { s.fsync = false }, "fsync"},
		{"torn pages", func(s *setup) { s.fullPages = false }, "full_page_writes"},
		{"asynchronous commits", func(s *setup) { s.synchronous = "off" }, "synchronous_commit"},
		{"local commits, alone", func(s *setup) { s.synchronous = "local" }, ""},
		{"local commits, with a standby", func(s *setup) { s.synchronous, s.standbyNames = "local", "s1" }, "synchronous_commit"},
		{"a synchronous standby", func(s *setup) { s.standbyNames, s.standbys, s.readWrite = "s1", 1, true }, ""},
		{"an asynchronous standby", func(s *setup) { s.standbys, s.readWrite = 1, true }, "synchronous standby"},
		{"two servers in the URL", func(s *setup) { s.hosts = 2 }, "target_session_attrs"},
		{"serializable", func(s *setup) { s.isolation = "serializable" }, "default isolation"},
		{"read-only", func(s *setup) { s.readOnly = true }, "read-write"},
		{"a standby", func(s *setup) { s.standby, s.readOnly = true, true }, "read-write"},
		{"no autovacuum", func(s *setup) { s.autovacuum = false }, "autovacuum"},
		{"crowded", func(s *setup) { s.clients = 90 }, "connections"},
		{"privileges of a site", func(s *setup) { s.grants = "GRANT" }, "privileges"},
		{"privileges of commands", func(s *setup) { s.grants, s.stopped = "GRANT", "lock" }, "privileges"},
		{"the server's other roles", func(s *setup) { s.closing = "REVOKE" }, ""},
		{"a role in place of a mapped one", func(s *setup) { s.mapping = mapping{known: true, sites: 1, absent: "eu"} }, "site roles"},
		{"a pooler that changes the role", func(s *setup) {
			s.mapping, s.pooled, s.user, s.role = mapping{known: true, sites: 1}, true, "eu", "pooler"
		}, "site roles"},
		{"changed tables", func(s *setup) { s.tables, s.intact = "there is no table locks: make it", false }, "tables"},
		{"a transaction that was just begun", func(s *setup) { s.holder, s.held = "process 7 in database x", time.Second }, ""},
		{"a transaction that stays open", func(s *setup) { s.holder, s.held = "process 7 in database x", time.Hour }, "history"},
		{"a commit that waits for its standby", func(s *setup) { s.holder, s.held, s.awaitsStandby = "process 7 in database x", time.Hour, true }, "history"},
		{"a pooler", func(s *setup) { s.pooled = true }, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := healthy
			row.change(&s)
			var sick []string
			for _, d := range s.diagnoses() {
				if d.Detail == "" || strings.Contains(d.Detail, "\n") {
					t.Errorf("%s: %q is not one line", d.Name, d.Detail)
				}
				if s.awaitsStandby && strings.Contains(d.Detail, "pg_terminate_backend") {
					t.Errorf("%s: %q would show what a failover loses", d.Name, d.Detail)
				}
				if !d.OK {
					sick = append(sick, d.Name)
					if !strings.Contains(d.Detail, ": ") {
						t.Errorf("%s: %q does not say what to do", d.Name, d.Detail)
					}
				}
			}
			if strings.Join(sick, ",") != row.sick {
				t.Errorf("not OK: %q, want %q", sick, row.sick)
			}
		})
	}
}

func TestAnUnsupportedServerIsRefusedByItsName(t *testing.T) {
	if err := checkVersion(130022, "13.22"); err == nil || !strings.Contains(err.Error(), "PostgreSQL 13.22 is too old: upgrade the server to 14") {
		t.Errorf("PostgreSQL 13: %v", err)
	}
	if err := checkVersion(140000, "14.0"); err != nil {
		t.Error(err)
	}
}
