package migrations

import (
	"errors"
	"fmt"
	"slices"
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
	schema    string            // its schema; "" if that is where new tables are made
	columns   map[string]string // types, by column
	required  []string          // columns that need a value
	key       string
	indexes   map[string]string // columns, by index
	triggers  map[string]bool   // whether they fire
	functions map[string]bool
}

// NewCatalogue returns one to [Catalogue.Add] to.
func NewCatalogue(d Dialect) *Catalogue {
	return &Catalogue{dialect: d, tables: make(map[string]*foundTable)}
}

// Add adds a row of [CatalogueSQL]. Rows of a key's columns must come in their order.
func (c *Catalogue) Add(table, part, name, detail string) {
	f := c.tables[table]
	if f == nil {
		f = &foundTable{columns: make(map[string]string), indexes: make(map[string]string), triggers: make(map[string]bool), functions: make(map[string]bool)}
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
	case "function":
		f.functions[name] = true
	case "trigger", "disabled":
		f.triggers[name] = part == "trigger"
	}
}

func appendName(all, next string) string {
	if all == "" {
		return next
	}
	return all + ", " + next
}

// TableNames returns the names of all tables that any version of the schema has.
func TableNames(d Dialect) []string {
	names := []string{Table}
	for _, t := range tables(d) {
		names = append(names, t.name)
	}
	return names
}

// CatalogueSQL returns the query for a [Catalogue]. Its rows are four texts. On
// PostgreSQL names are resolved by this session's search_path.
func CatalogueSQL(d Dialect) string {
	return named(d, map[Dialect]string{
		Postgres: postgresGuards + postgresShape, Spanner: spannerCatalogue, SQLite: sqliteGuards + sqliteShape,
	}[d])
}

// GuardsSQL returns the query for a [Record]'s Guards: the tables, their keys and their triggers. It reads
// system catalogues only, which needs no privilege. On Spanner there is none: see [Check].
func GuardsSQL(d Dialect) string {
	return named(d, map[Dialect]string{Postgres: postgresGuards, SQLite: sqliteGuards}[d])
}

// named puts the names of our tables into a query.
func named(d Dialect, query string) string {
	names := append(TableNames(d), strings.ToLower(earlierTable(d)))
	return strings.ReplaceAll(query, "NAMES", "('"+strings.Join(names, "', '")+"')")
}

const postgresGuards = `
WITH tab AS (
  SELECT c.oid, c.relname, c.relnamespace, n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relname IN NAMES AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_table_is_visible(c.oid)
)
SELECT relname::text, 'place', '', CASE WHEN nspname = current_schema() THEN '' ELSE nspname::text END FROM tab
UNION ALL SELECT relname::text, 'key', '', (
  SELECT string_agg(attname, ', ' ORDER BY array_position(indkey::int2[], attnum)) FROM pg_attribute WHERE attrelid = indrelid AND attnum = ANY (indkey))
FROM tab JOIN pg_index ON indrelid = oid WHERE indisprimary AND indisvalid
UNION ALL SELECT relname::text, CASE WHEN tgenabled IN ('O', 'A') THEN 'trigger' ELSE 'disabled' END, tgname::text, ''
FROM tab JOIN pg_trigger ON tgrelid = tab.oid WHERE NOT tgisinternal`

const postgresShape = `
UNION ALL (WITH col AS (
  SELECT relname, a.* FROM tab JOIN pg_attribute a ON attrelid = oid WHERE attnum > 0 AND NOT attisdropped
)
SELECT relname::text, 'column', attname::text,
       format_type(atttypid, atttypmod) || coalesce((SELECT ' COLLATE "C"' FROM pg_collation l WHERE l.oid = attcollation AND collname = 'C'), '') FROM col
UNION ALL SELECT relname::text, 'required', attname::text, '' FROM col WHERE attnotnull AND NOT atthasdef AND attidentity = '')
UNION ALL SELECT tab.relname::text, 'index', c.relname::text,
       (SELECT string_agg(btrim(pg_get_indexdef(i.indexrelid, n, true), '"'), ', ' ORDER BY n) FROM generate_series(1, i.indnkeyatts) n)
FROM tab JOIN pg_index i ON i.indrelid = tab.oid JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indisvalid AND NOT i.indisprimary
UNION ALL SELECT 'admission', 'function', proname::text, '' FROM pg_proc
WHERE proname LIKE 'refdb\_%' AND pronamespace = (SELECT relnamespace FROM tab WHERE relname = 'admission')`

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

const sqliteGuards = `
WITH tab AS (SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND lower(name) IN NAMES)
SELECT lower(name), 'place', '', '' FROM tab
UNION ALL SELECT lower(tab.name), 'key', '', (SELECT group_concat(lower(c.name), ', ' ORDER BY c.pk) FROM pragma_table_info(tab.name) c WHERE c.pk > 0)
FROM tab WHERE EXISTS (SELECT 1 FROM pragma_table_info(tab.name) c WHERE c.pk > 0)
UNION ALL SELECT lower(tab.name), 'trigger', lower(t.name), '' FROM tab JOIN sqlite_master t ON t.type = 'trigger' AND lower(t.tbl_name) = lower(tab.name)`

const sqliteShape = `
UNION ALL SELECT lower(tab.name), 'column', lower(c.name), upper(c.type) FROM tab, pragma_table_info(tab.name) c
UNION ALL SELECT lower(tab.name), 'required', lower(c.name), '' FROM tab, pragma_table_info(tab.name) c WHERE c."notnull" AND c.dflt_value IS NULL
UNION ALL SELECT lower(tab.name), 'index', lower(i.name), (SELECT group_concat(lower(c.name), ', ' ORDER BY c.seqno) FROM pragma_index_info(i.name) c)
FROM tab, pragma_index_list(tab.name) i WHERE i.origin = 'c'`

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

// Examine compares the database with a version of the schema. It lists the tables, columns, keys, indexes, triggers and functions
// that are missing or differ, and says what to do; ok is true if there are none. The version is one that this program serves; a
// later one is treated as the latest that the program knows.
func (c *Catalogue) Examine(version uint) (detail string, ok bool) {
	version = min(version, Latest(c.dialect))
	all := c.compare(version, func(f *foundTable, t table) []fault {
		return slices.Concat(f.faults(t, version), f.indexFaults(t), f.triggerFaults(t, version), f.functionFaults(t, version))
	})
	if len(all) == 0 {
		return "columns, keys, indexes and triggers are as they should be", true
	}
	return c.report(all), false
}

// checkGuards fails if a table of that version, its key or one of its triggers is missing. A statement would succeed without them.
func (c *Catalogue) checkGuards(version uint) error {
	all := c.compare(version, func(f *foundTable, t table) []fault {
		return append(f.keyFaults(t), f.triggerFaults(t, version)...)
	})
	if len(all) == 0 {
		return nil
	}
	return errors.New(c.report(all))
}

// compare returns what differs from that version, which differs compares for a table.
func (c *Catalogue) compare(version uint, differs func(*foundTable, table) []fault) []fault {
	var all []fault
	for _, t := range tables(c.dialect) {
		switch f := c.tables[t.name]; {
		case !t.in(version):
		case f == nil && t.name == "refs":
			all = append(all, fault{text: "there is no table refs"}) // a new one would be empty: the rows must be restored
		case f == nil:
			all = append(all, fault{text: "there is no table " + t.name, repeatable: true})
		default:
			all = append(all, differs(f, t)...)
		}
	}
	return all
}

// triggersStep is the step that makes the triggers of SQLite anew.
const triggersStep = 11

// report says what the faults are, and what to do.
func (c *Catalogue) report(all []fault) string {
	first, from := "", 0
	texts := make([]string, len(all))
	for i, f := range all {
		texts[i] = f.text
		if f.statement != "" {
			first += "`" + f.statement + "` as the owner of the tables, then "
		}
	}
	repeatable := func(f fault) bool { return f.repeatable }
	if c.dialect == SQLite {
		repeatable, from = func(f fault) bool { return f.trigger }, triggersStep-1
	}
	advice := fmt.Sprintf("run %s`refdbctl migrate force %d`, then `refdbctl migrate up`, which brings the latest version", first, from)
	if slices.ContainsFunc(all, func(f fault) bool { return !repeatable(f) }) {
		advice = "undo what changed it, or restore a backup"
	}
	return strings.Join(texts, ", ") + ": " + advice
}

// A fault is a difference from the schema of a version.
type fault struct {
	text       string
	repeatable bool   // repeating the steps up repairs it, on Spanner and PostgreSQL
	trigger    bool   // so does repeating triggersStep, on SQLite
	statement  string // that comes before them
}

// faults compares the table's columns and key with those of that version.
func (f *foundTable) faults(t table, version uint) []fault {
	var all []fault
	add := func(repeatable bool, format string, args ...any) {
		all = append(all, fault{text: fmt.Sprintf(format, args...), repeatable: repeatable})
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
	return append(all, f.keyFaults(t)...)
}

// keyFaults compares the table's key. A table that was restored alone may have none.
func (f *foundTable) keyFaults(t table) []fault {
	switch f.key {
	case t.key:
		return nil
	case "":
		return []fault{{
			text: fmt.Sprintf("%s has no primary key (%s)", t.name, t.key), repeatable: true,
			statement: fmt.Sprintf("ALTER TABLE %s ADD PRIMARY KEY (%s)", t.name, t.key),
		}}
	}
	return []fault{{text: fmt.Sprintf("the primary key of %s is (%s) instead of (%s)", t.name, f.key, t.key)}}
}

func (f *foundTable) indexFaults(t table) []fault {
	var all []fault
	for _, i := range t.indexes {
		switch columns, ok := f.indexes[i.name]; {
		case !ok:
			all = append(all, fault{text: fmt.Sprintf("there is no index %s on %s (%s)", i.name, t.name, i.columns), repeatable: true})
		case columns != i.columns:
			all = append(all, fault{text: fmt.Sprintf("the index %s is on %s (%s) instead of (%s)", i.name, t.name, columns, i.columns)})
		}
	}
	return all
}

func (f *foundTable) triggerFaults(t table, version uint) []fault {
	var all []fault
	for _, trigger := range t.triggers {
		switch fires, there := f.triggers[trigger.name]; {
		case trigger.since > version || fires:
		case there:
			all = append(all, fault{text: fmt.Sprintf("the trigger %s on %s is disabled", trigger.name, t.name), repeatable: true, trigger: true})
		default:
			all = append(all, fault{text: fmt.Sprintf("there is no trigger %s on %s", trigger.name, t.name), repeatable: true, trigger: true})
		}
	}
	return all
}

func (f *foundTable) functionFaults(t table, version uint) []fault {
	var all []fault
	for _, function := range t.functions {
		if function.since <= version && !f.functions[function.name] {
			all = append(all, fault{text: fmt.Sprintf("there is no function %s", function.name), repeatable: true})
		}
	}
	return all
}
