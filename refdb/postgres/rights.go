package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// recorded are the commands that are recorded in the audit before they begin.
const recorded = "access allow, access remove, followers remove, locks purge, locks resolve, project freeze, project remove, project set, project set --mirror-at, project unfreeze, refs purge-tombstones, refs rollback, site store, site take-over, sites retire, token create, token revoke"

// reads are the commands that read the history, apart from "history prune", which is in owners.
const reads = "refs log, refs rollback, watch"

// changes are the commands that change refs.
const changes = "access allow, access remove, project set --mirror-at, refs delete, refs import, refs put, refs rollback, token create, token revoke"

// missingSQL finds the privileges that a site needs and this user lacks. A privilege with columns is
// needed on these columns only. stops lists the commands that fail without the privilege. Since
// version 11 of the schema, triggers write the history with the privileges of their owner, and only
// since version 12 does a site correct a lost change that another site reported.
const missingSQL = `
WITH missing AS (
  SELECT *, privilege || CASE columns WHEN '' THEN '' ELSE ' (' || columns || ')' END AS granted FROM (VALUES
    ('refs', 1, 'SELECT', '', 'access list, lock, locks resolve, project freeze, project list, project remove, project set, project show, project unfreeze, refs list, refs purge-tombstones, ` + changes + `, site clone, site enable, site store, site take-over, sites retire, token list, top'),
    ('refs', 2, 'INSERT', '', 'locks resolve, project remove, ` + changes + `, site clone, site enable, site take-over, sites retire'),
    ('refs', 3, 'UPDATE', '', 'locks resolve, project remove, ` + changes + `, site clone, site enable, site take-over, sites retire'),
    ('refs', 4, 'DELETE', '', 'project remove, refs purge-tombstones, sites retire'),
    ('locks', 1, 'SELECT', '', 'lock, locks list, locks purge, locks resolve, project freeze, project list, project remove, ` + changes + `, site clone, site enable, site take-over, sites retire, top'),
    ('locks', 2, 'INSERT', '', 'lock, site take-over, sites retire'),
    ('locks', 3, 'UPDATE', '', 'lock, locks purge, locks resolve, project remove, ` + changes + `, site clone, site enable, site take-over, sites retire'),
    ('locks', 4, 'DELETE', '', 'lock, locks purge, locks resolve, project remove, ` + changes + `, site clone, site enable, site take-over, sites retire'),
    ('intents', 1, 'SELECT', '', 'locks list, locks resolve, project freeze, site clone, site take-over, sites retire, top'), ('intents', 2, 'INSERT', '', NULL),
    ('intents', 3, 'UPDATE', 'decision, decided_by, reason, decided_at', 'locks resolve, site clone, sites retire'), ('intents', 4, 'DELETE', '', NULL),
    ('projects', 1, 'SELECT', '', 'project freeze, project list, project remove, project set, project show, project unfreeze, ` + changes + `, site clone, site enable, site store, site take-over, sites retire, top'), ('projects', 2, 'INSERT', '', 'project freeze, project set, project unfreeze, site enable, project remove, site store'), ('projects', 3, 'UPDATE', '', 'project freeze, project set, project unfreeze, site enable, project remove, site store'),
    ('audit', 1, 'SELECT', '', 'audit list, ` + recorded + `'), ('audit', 2, 'INSERT', '', '` + recorded + `'), ('audit', 3, 'UPDATE', 'outcome, ended', NULL),
    ('history', 1, 'SELECT', '', 'history stats, ` + reads + `, site clone, sites retire, top'), ('history', 2, 'INSERT', '', 'locks resolve, project remove, refs purge-tombstones, ` + changes + `, site clone, site enable, site take-over, sites retire'),
    ('history_state', 1, 'SELECT', '', 'history stats, ` + reads + `, sites retire, top'), ('epochs', 1, 'SELECT', '', 'history stats, ` + reads + `, top'),
    ('followers', 1, 'SELECT', '', 'followers list, followers remove, sites retire, top'), ('followers', 2, 'INSERT', '', NULL), ('followers', 3, 'UPDATE', '', NULL), ('followers', 4, 'DELETE', '', 'followers remove, sites retire'),
    ('admission', 1, 'SELECT', '', 'history stats, lock, locks purge, locks resolve, project freeze, project remove, project set, project unfreeze, recover, refs purge-tombstones, ` + reads + `, ` + changes + `, site clone, site enable, site store, site take-over, sites retire, top'), ('admission', 3, 'UPDATE', '', 'sites retire'),
    ('witnesses', 1, 'SELECT', '', 'recover, sites retire, top'), ('witnesses', 2, 'INSERT', '', 'sites retire'), ('witnesses', 3, 'UPDATE', '', 'sites retire'),
    ('lost', 1, 'SELECT', '', 'recover, sites retire, top'), ('lost', 2, 'INSERT', '', NULL), ('lost', 3, 'UPDATE', 'move', NULL),
    ('packs', 1, 'SELECT', '', 'project remove, site clone, site store, sites retire'), ('packs', 2, 'INSERT', '', 'site store'), ('packs', 3, 'UPDATE', '', 'project remove, site store'), ('packs', 4, 'DELETE', '', 'project remove, site store'),
    ('pack_parts', 1, 'SELECT', '', 'site clone, site store, sites retire'), ('pack_parts', 2, 'INSERT', '', 'site store'), ('pack_parts', 4, 'DELETE', '', NULL),
    ('site_roles', 1, 'SELECT', '', NULL), ('refdb_schema', 1, 'SELECT', '', NULL),
    ('token_origin', 1, 'SELECT', '', 'lock, site take-over, sites retire'), ('token_origin', 3, 'UPDATE', '', 'lock, site take-over, sites retire')) AS needed (tab, n, privilege, columns, stops)
  WHERE NOT CASE columns WHEN '' THEN has_table_privilege(to_regclass(tab), privilege) ELSE (
      SELECT bool_and(has_column_privilege(attrelid, attnum, privilege)) FROM pg_attribute
      WHERE attrelid = to_regclass(tab) AND attname = ANY (string_to_array(columns, ', '))) END
    AND NOT (tab = 'history' AND privilege = 'INSERT' AND to_regclass('site_roles') IS NOT NULL)
)`

// grantsSQL is an expression over missing: the statements that grant what the command $1 needs, or
// all missing privileges if $1 is empty.
const grantsSQL = `(SELECT coalesce(string_agg(grants, '; ' ORDER BY tab), '') FROM (
          SELECT tab, format('GRANT %s ON %s TO %I', string_agg(granted, ', ' ORDER BY n), tab, current_user) AS grants
          FROM missing WHERE $1 = '' OR $1 = ANY (string_to_array(stops, ', ')) GROUP BY tab) AS grants)`

// rightsSQL returns whether this user is a member of the role that owns the tables. The setting
// refdb.recovery takes effect only for such members (session_user).
const rightsSQL = missingSQL + `
SELECT current_user::text, owner::regrole::text, pg_has_role(session_user, owner, 'MEMBER') AND pg_has_role(current_user, owner, 'USAGE'), ` + grantsSQL + `
FROM (SELECT relowner AS owner FROM pg_class WHERE oid = to_regclass('refs')) AS refs`

// owners are the commands that only the owner of the tables may run.
const owners = "history prune, recover"

// CheckRights implements driver.RightsChecker.
func (d *Driver) CheckRights(ctx context.Context, command string) error {
	var user, owner, grants string
	var owns bool
	err := d.pools.Do(ctx, roundtrip.Read("inspect the privileges").Query(rightsSQL, func(rows pgx.Rows) error {
		return one(rows, &user, &owner, &owns, &grants)
	}, command))
	switch {
	case err != nil:
		return err
	case slices.Contains(strings.Split(owners, ", "), command):
		if !owns {
			return fmt.Errorf("%s needs the owner of the tables, not the role %s: name %s in the database URL", command, user, owner)
		}
	case grants != "":
		return fmt.Errorf("%s needs more privileges than the role %s has: name %s or a site's role in the database URL or, as %[3]s: %[4]s", command, user, owner, grants)
	}
	return nil
}

// explainRefusal returns an error that explains why a user may not read even the schema's version,
// in which case no command can check the privileges. It returns nil if it finds no reason.
func explainRefusal(ctx context.Context, pools *roundtrip.Pools) error {
	var user, owner, grants string
	var owns bool
	err := pools.Do(ctx, roundtrip.Read(openDatabase).Query(rightsSQL, func(rows pgx.Rows) error {
		return one(rows, &user, &owner, &owns, &grants)
	}, ""))
	if err != nil || grants == "" {
		return nil
	}
	return fmt.Errorf("the role %s may not read the tables: name another role in the database URL or, as %s: %s", user, owner, grants)
}

// A mapping holds the contents of the table site_roles.
type mapping struct {
	known  bool   // the schema has the table, and this user may read it
	sites  int    // roles that are mapped to a site
	own    string // the site of this session's role, "" for none
	absent string // roles that don't exist
	owns   bool   // this session's role is the owner's
}

const (
	readsSiteRolesSQL = `SELECT coalesce(has_table_privilege(to_regclass('site_roles'), 'SELECT'), false)`

	siteRolesSQL = `
SELECT true, (SELECT count(*) FROM site_roles), coalesce((SELECT site FROM site_roles WHERE role = session_user), ''),
       coalesce((SELECT string_agg(quote_ident(role), ', ' ORDER BY role) FROM site_roles WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role)), ''),
       pg_has_role(session_user, relowner, 'MEMBER') FROM pg_class WHERE oid = to_regclass('site_roles')`
)

// siteRoles reads the mapping, if the table exists.
func (d *Driver) siteRoles(ctx context.Context) (m mapping, err error) {
	err = d.pools.Do(ctx, roundtrip.Read("diagnose").Query(readsSiteRolesSQL, func(rows pgx.Rows) error { return one(rows, &m.known) }))
	if err != nil || !m.known {
		return m, err
	}
	err = d.pools.Do(ctx, roundtrip.Read("diagnose").Query(siteRolesSQL, func(rows pgx.Rows) error {
		return one(rows, &m.known, &m.sites, &m.own, &m.absent, &m.owns)
	}))
	return m, err
}

// mayReplace returns nil if sessions of conn's role may replace those of the role before: it has
// the privileges that a site needs, and speaks for the same site.
func (d *Driver) mayReplace(ctx context.Context, conn *pgx.Conn, before string) error {
	const what = "connect with the credentials in the address"
	tx, err := conn.Begin(ctx)
	if err != nil {
		return roundtrip.Failure(ctx, what, roundtrip.Preparing, err)
	}
	defer tx.Rollback(ctx)
	if err := d.pools.Settings().Begin(ctx, conn); err != nil {
		return roundtrip.Failure(ctx, what, roundtrip.Executing, err)
	}
	var user, owner, grants, own, earlier string
	var owns, mapped bool
	err = tx.QueryRow(ctx, rightsSQL, pgx.QueryExecModeExec, "").Scan(&user, &owner, &owns, &grants)
	if err == nil && grants != "" {
		return fmt.Errorf("%s: %w: the role %s has fewer privileges than a site needs: name another role in the address or, as %s: %s", what, driver.ErrInvalid, user, owner, grants)
	}
	if err == nil {
		err = tx.QueryRow(ctx, readsSiteRolesSQL, pgx.QueryExecModeExec).Scan(&mapped)
	}
	if err == nil && mapped {
		err = tx.QueryRow(ctx, sitesOfRolesSQL, pgx.QueryExecModeExec, before).Scan(&own, &earlier)
	}
	if err != nil {
		return roundtrip.Failure(ctx, what, roundtrip.Executing, err)
	}
	if own != earlier {
		return fmt.Errorf("%s: %w: the table site_roles %s, and %s: correct the address or the table; if both are right, restart the program",
			what, driver.ErrInvalid, speaksFor(user, own), speaksFor(before, earlier))
	}
	return nil
}

// sitesOfRolesSQL returns the sites that the session's role and the role $1 speak for.
const sitesOfRolesSQL = `SELECT coalesce((SELECT site FROM site_roles WHERE role = session_user), ''), coalesce((SELECT site FROM site_roles WHERE role = CAST($1 AS text)), '')`

func speaksFor(role, site string) string {
	if site == "" {
		return "maps the role " + role + " to no site"
	}
	return "maps the role " + role + " to the site " + site
}

// connectPrivilege reports whether the server's other roles are excluded.
func (s setup) connectPrivilege() driver.Diagnosis {
	d := driver.Diagnosis{Name: "connect privilege", OK: true, Detail: "only for roles that it was granted to"}
	if s.closing != "" {
		d.Note = true
		d.Detail = "every role of the server has it, and can stop all pushes to a project with an advisory lock: unless all of them are refdb's: " + s.closing
	}
	return d
}

// siteRoles reports whether this session's role speaks for one site.
func (s setup) siteRoles() driver.Diagnosis {
	d := driver.Diagnosis{Name: "site roles", OK: true, Note: true}
	const see = ": see the table site_roles in docs/OPERATIONS.md"
	switch m := s.mapping; {
	case !m.known:
		d.Detail = "not known: the schema has no table site_roles, or this user may not read it"
	case m.absent != "":
		d.OK, d.Note = false, false
		d.Detail = "the table site_roles names roles that do not exist, so that the roles in their place are not checked: create them, or correct the table: " + m.absent
	case m.sites == 0:
		d.Detail = "no role is mapped to a site: each role that writes can speak for every site" + see
	case s.pooled && s.user != "" && s.user != s.role:
		d.OK, d.Note = false, false
		d.Detail = fmt.Sprintf("a pooler makes the sessions of %s those of %s, which the server checks instead: leave user= out of the pooler's configuration", s.user, s.role)
	case m.own != "":
		d.Note, d.Detail = false, fmt.Sprintf("the role %s speaks for the site %s only", s.role, m.own)
	case m.owns:
		d.Note, d.Detail = false, "this is the owner of the tables, which is not checked; mapped to a site: "+fmt.Sprint(m.sites)
	default:
		d.Detail = fmt.Sprintf("the role %s is mapped to no site, and can speak for every site", s.role) + see
	}
	return d
}
