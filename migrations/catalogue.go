package migrations

import (
	"fmt"
	"strings"
)

// earlierTable is golang-migrate's default name for the table of versions. Earlier
// programs used it, and other applications may.
func earlierTable(d Dialect) string {
	if d == Spanner {
		return "SchemaMigrations"
	}
	return "schema_migrations"
}

// A Catalogue describes those tables of a database that have the names of ours. Its
// zero value is that of an empty database.
type Catalogue struct {
	dialect Dialect
	tables  map[string]*foundTable // by name, in lower case unless on PostgreSQL
}

// foundTable is a table, or a view, in the database.
type foundTable struct {
	schema   string            // its schema; "" if that is where new tables are made
	columns  map[string]string // types, by column
	required []string          // columns that need a value
	key      string
	indexes  map[string]string // columns, by index
	triggers map[string]bool
}

// NewCatalogue returns one to [Catalogue.Add] to.
func NewCatalogue(d Dialect) *Catalogue {
	return &Catalogue{dialect: d, tables: make(map[string]*foundTable)}
}

// Add adds a row of [CatalogueSQL]. Rows of a key's columns must come in their order.
func (c *Catalogue) Add(table, part, name, detail string) {
	f := c.tables[table]
	if f == nil {
		f = &foundTable{columns: make(map[string]string), indexes: make(map[string]string), triggers: make(map[string]bool)}
		c.tables[table] = f
	}
	switch part {
	case "place":
		f.schema = detail
	case "column":
		f.columns[name] = detail
	case "required":
		f.required = append(f.required, name)
	case "key":
		f.key = appendName(f.key, detail)
	case "index":
		f.indexes[name] = appendName(f.indexes[name], detail)
	case "trigger":
		f.triggers[name] = true
	}
}

func appendName(all, next string) string {
	if all == "" {
		return next
	}
	return all + ", " + next
}

// CatalogueSQL returns the query for a [Catalogue]. Its rows are four texts. On
// PostgreSQL names are resolved by this session's search_path.
func CatalogueSQL(d Dialect) string {
	names := []string{Table, strings.ToLower(earlierTable(d))}
	for _, t := range tables(d) {
		names = append(names, t.name)
	}
	return strings.ReplaceAll(map[Dialect]string{
		Postgres: postgresCatalogue, Spanner: spannerCatalogue, SQLite: sqliteCatalogue,
	}[d], "NAMES", "('"+strings.Join(names, "', '")+"')")
}

const postgresCatalogue = `
WITH tab AS (
  SELECT c.oid, c.relname, n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relname IN NAMES AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_table_is_visible(c.oid)
), col AS (
  SELECT relname, a.* FROM tab JOIN pg_attribute a ON attrelid = oid WHERE attnum > 0 AND NOT attisdropped
), ind AS (
  SELECT tab.relname, i.indisprimary, c.relname AS name,
         (SELECT string_agg(btrim(pg_get_indexdef(i.indexrelid, n, true), '"'), ', ' ORDER BY n) FROM generate_series(1, i.indnkeyatts) n) AS columns
  FROM tab JOIN pg_index i ON i.indrelid = tab.oid JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indisvalid
)
SELECT relname::text, 'place', '', CASE WHEN nspname = current_schema() THEN '' ELSE nspname::text END FROM tab
UNION ALL SELECT relname::text, 'column', attname::text,
       format_type(atttypid, atttypmod) || coalesce((SELECT ' COLLATE "C"' FROM pg_collation l WHERE l.oid = attcollation AND collname = 'C'), '') FROM col
UNION ALL SELECT relname::text, 'required', attname::text, '' FROM col WHERE attnotnull AND NOT atthasdef AND attidentity = ''
UNION ALL SELECT relname::text, CASE WHEN indisprimary THEN 'key' ELSE 'index' END, name::text, columns FROM ind
UNION ALL SELECT relname::text, 'trigger', tgname::text, '' FROM tab JOIN pg_trigger ON tgrelid = tab.oid WHERE NOT tgisinternal AND tgenabled IN ('O', 'A')`

const spannerCatalogue = `
SELECT tab, part, name, detail FROM (
  SELECT LOWER(TABLE_NAME) AS tab, 'place' AS part, '' AS name, '' AS detail, 0 AS position
  FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_SCHEMA = '' AND LOWER(TABLE_NAME) IN NAMES
  UNION ALL SELECT LOWER(TABLE_NAME), 'column', LOWER(COLUMN_NAME), SPANNER_TYPE, 0
  FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_SCHEMA = '' AND LOWER(TABLE_NAME) IN NAMES
  UNION ALL SELECT LOWER(TABLE_NAME), 'required', LOWER(COLUMN_NAME), '', 0
  FROM INFORMATION_SCHEMA.COLUMNS
  WHERE TABLE_SCHEMA = '' AND LOWER(TABLE_NAME) IN NAMES AND IS_NULLABLE = 'NO' AND COLUMN_DEFAULT IS NULL
  UNION ALL SELECT LOWER(TABLE_NAME), IF(INDEX_TYPE = 'PRIMARY_KEY', 'key', 'index'), LOWER(INDEX_NAME), LOWER(COLUMN_NAME), ORDINAL_POSITION
  FROM INFORMATION_SCHEMA.INDEX_COLUMNS WHERE TABLE_SCHEMA = '' AND LOWER(TABLE_NAME) IN NAMES AND ORDINAL_POSITION IS NOT NULL
) ORDER BY position`

const sqliteCatalogue = `
WITH tab AS (SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND lower(name) IN NAMES)
SELECT lower(name), 'place', '', '' FROM tab
UNION ALL SELECT lower(tab.name), 'column', lower(c.name), upper(c.type) FROM tab, pragma_table_info(tab.name) c
UNION ALL SELECT lower(tab.name), 'required', lower(c.name), '' FROM tab, pragma_table_info(tab.name) c WHERE c."notnull" AND c.dflt_value IS NULL
UNION ALL SELECT lower(tab.name), 'key', '', (SELECT group_concat(lower(c.name), ', ' ORDER BY c.pk) FROM pragma_table_info(tab.name) c WHERE c.pk > 0)
FROM tab WHERE EXISTS (SELECT 1 FROM pragma_table_info(tab.name) c WHERE c.pk > 0)
UNION ALL SELECT lower(tab.name), 'index', lower(i.name), (SELECT group_concat(lower(c.name), ', ' ORDER BY c.seqno) FROM pragma_index_info(i.name) c)
FROM tab, pragma_index_list(tab.name) i WHERE i.origin = 'c'
UNION ALL SELECT lower(tab.name), 'trigger', lower(t.name), '' FROM tab JOIN sqlite_master t ON t.type = 'trigger' AND lower(t.tbl_name) = lower(tab.name)`

// Has reports whether the table is there.
func (c *Catalogue) Has(table string) bool { return c.tables[table] != nil }

// VersionTable returns the name of the table that records the version of our
// schema, "" if there is none. A table of golang-migrate's default name counts as
// ours only if our own tables exist.
func (c *Catalogue) VersionTable() string {
	switch earlier := earlierTable(c.dialect); {
	case c.tables[Table] != nil:
		return Table
	case c.tables[strings.ToLower(earlier)] != nil && c.isOurs():
		return earlier
	}
	return ""
}

// Missing returns the error of a database without a version of our schema.
func (c *Catalogue) Missing() error {
	err := Check(c.dialect, Record{})
	earlier := earlierTable(c.dialect)
	if c.tables[strings.ToLower(earlier)] == nil || c.VersionTable() != "" {
		return err
	}
	return fmt.Errorf("%w (the table %s is another application's)", err, earlier)
}

// isOurs reports whether the tables refs and locks exist as this project makes them.
func (c *Catalogue) isOurs() bool {
	for _, t := range tables(c.dialect)[:2] {
		f := c.tables[t.name]
		if f == nil || len(f.faults(t, t.first)) > 0 {
			return false
		}
		// On Spanner Gerrit's plugin makes both tables too, without the columns that we add.
		if c.dialect == Spanner && f.columns[map[string]string{"refs": "op", "locks": "stale_after"}[t.name]] == "" {
			return false
		}
	}
	return true
}

// Adoptable returns the tables and indexes that exist before the first step, and
// that the step leaves as they are. It fails if one of our names stands for something
// else. Such tables are adopted only on Spanner, where Gerrit's plugin makes them,
// or if recorded says that the version of our schema was once recorded.
func (c *Catalogue) Adoptable(recorded bool) (adopted []string, err error) {
	for _, t := range tables(c.dialect) {
		f := c.tables[t.name]
		if f == nil || f.schema != "" {
			continue // there is none, or it is in another schema
		}
		reason := "is there already, and not refdb's"
		if recorded || c.dialect == Spanner {
			faults := f.faults(t, t.first)
			if len(faults) == 0 {
				if t.first == 1 {
					adopted = append(adopted, t.name)
					for _, i := range t.indexes {
						if _, ok := f.indexes[i.name]; ok {
							adopted = append(adopted, i.name)
						}
					}
				}
				continue
			}
			reason = "is not as refdb needs it: " + faults[0].text
		}
		return nil, c.inTheWay(t, reason)
	}
	return adopted, nil
}

// CheckNewTables fails if a table that only a later version makes exists, and differs from what
// that version makes: then it is another application's.
func (c *Catalogue) CheckNewTables(version uint) error {
	for _, t := range tables(c.dialect) {
		f := c.tables[t.name]
		if t.first <= version || f == nil || f.schema != "" {
			continue
		}
		if faults := f.faults(t, t.first); len(faults) > 0 {
			return c.inTheWay(t, "is not as refdb needs it: "+faults[0].text)
		}
	}
	return nil
}

func (c *Catalogue) inTheWay(t table, reason string) error {
	advice := "use a database of its own"
	if c.dialect == Postgres {
		advice += ", or a schema (search_path)"
	}
	return fmt.Errorf("nothing was changed: the table %s %s: %s", t.name, reason, advice)
}

// checkSearchPath fails if the table of versions is not in the schema in which new tables
// would be made.
func (c *Catalogue) checkSearchPath() error {
	name := c.VersionTable()
	if name == "" || c.tables[strings.ToLower(name)].schema == "" {
		return nil
	}
	return fmt.Errorf("the schema is in %q, which is not the first of the search_path: name it first in the database URL (search_path=…)",
		c.tables[strings.ToLower(name)].schema)
}

// Examine compares the database with a version of the schema. It lists the tables, columns, keys, indexes and triggers that are
// missing or differ, and says what to do; ok is true if there are none. The version is one that this program serves; a later one
// is treated as the latest that the program knows.
func (c *Catalogue) Examine(version uint) (detail string, ok bool) {
	var all []fault
	version = min(version, Latest(c.dialect))
	for _, t := range tables(c.dialect) {
		switch f := c.tables[t.name]; {
		case !t.in(version):
		case f == nil:
			// A new table of refs would be empty: the rows must be restored.
			all = append(all, fault{"there is no table " + t.name, t.name != "refs"})
		default:
			all = append(all, f.faults(t, version)...)
			all = append(all, f.indexFaults(t)...)
			all = append(all, f.triggerFaults(t, version)...)
		}
	}
	if len(all) == 0 {
		return "columns, keys and indexes are as they should be", true
	}
	texts, advice := make([]string, len(all)), "run `refdbctl migrate force 0`, then `refdbctl migrate up`, which brings the latest version"
	for i, f := range all {
		texts[i] = f.text
		if !f.repeatable || c.dialect == SQLite {
			advice = "undo what changed it, or restore a backup"
		}
	}
	return strings.Join(texts, ", ") + ": " + advice, false
}

// A fault is a difference from the schema of a version.
type fault struct {
	text       string
	repeatable bool // repeating the steps up repairs it
}

// faults compares the table's columns and key with those of that version.
func (f *foundTable) faults(t table, version uint) []fault {
	var all []fault
	add := func(repeatable bool, format string, args ...any) {
		all = append(all, fault{fmt.Sprintf(format, args...), repeatable})
	}
	for _, col := range t.columns {
		switch kind, ok := f.columns[col.name]; {
		case col.since > version:
		case !ok:
			add(col.since > t.first, "there is no column %s.%s", t.name, col.name)
		case kind != col.kind:
			add(false, "the column %s.%s is %s instead of %s", t.name, col.name, kind, col.kind)
		}
	}
	for _, name := range f.required {
		if !t.column(name) {
			add(false, "the column %s.%s is not refdb's, and needs a value", t.name, name)
		}
	}
	if f.key != t.key {
		add(false, "the primary key of %s is (%s) instead of (%s)", t.name, f.key, t.key)
	}
	return all
}

func (f *foundTable) indexFaults(t table) []fault {
	var all []fault
	for _, i := range t.indexes {
		switch columns, ok := f.indexes[i.name]; {
		case !ok:
			all = append(all, fault{fmt.Sprintf("there is no index %s on %s (%s)", i.name, t.name, i.columns), true})
		case columns != i.columns:
			all = append(all, fault{fmt.Sprintf("the index %s is on %s (%s) instead of (%s)", i.name, t.name, columns, i.columns), false})
		}
	}
	return all
}

func (f *foundTable) triggerFaults(t table, version uint) []fault {
	var all []fault
	for _, trigger := range t.triggers {
		if trigger.since <= version && !f.triggers[trigger.name] {
			all = append(all, fault{fmt.Sprintf("there is no trigger %s on %s", trigger.name, t.name), true})
		}
	}
	return all
}
