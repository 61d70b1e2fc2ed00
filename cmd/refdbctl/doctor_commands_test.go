package main

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// withoutPrivilege returns a URL of the database for a role that lacks one of a site's privileges.
func withoutPrivilege(t *testing.T, db *dbtest.Database, privilege, table string) string {
	t.Helper()
	role := "refdbctl_test_" + strings.ToLower(privilege) + "_" + table
	db.Exec(t, `CREATE ROLE `+role)
	t.Cleanup(func() {
		db.Exec(t, `DROP OWNED BY `+role)
		db.Exec(t, `DROP ROLE `+role)
	})
	db.Exec(t, `GRANT SELECT, INSERT, UPDATE, DELETE ON refs, locks, intents TO `+role)
	db.Exec(t, `GRANT SELECT, UPDATE ON token_origin TO `+role)
	db.Exec(t, `GRANT SELECT, INSERT, UPDATE ON projects, audit TO `+role)
	db.Exec(t, `GRANT SELECT, INSERT ON history TO `+role)
	db.Exec(t, `GRANT SELECT, INSERT, UPDATE, DELETE ON followers TO `+role)
	db.Exec(t, `GRANT SELECT ON refdb_schema, history_state, epochs TO `+role)
	db.Exec(t, `REVOKE `+privilege+` ON `+table+` FROM `+role)
	separator := "?"
	if strings.Contains(db.URL(), "?") {
		separator = "&"
	}
	return db.URL() + separator + "options=-crole%3D" + role
}
