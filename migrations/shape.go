package migrations

import "slices"

// A table describes one table in all versions of the schema.
type table struct {
	name        string
	first, last uint // versions of the schema that have it; last is 0 if all later ones do
	key         string
	columns     []column
	indexes     []index
	triggers    []routine
	functions   []routine // that are called by name, and needed with the table
}

type column struct {
	name, kind string // kind as the catalogue spells it
	since      uint
}

// A routine is a trigger or a function.
type routine struct {
	name  string
	since uint
}

// index is an index of the latest version. It lists its columns as key does: in
// order, with ", " between them.
type index struct{ name, columns string }

const (
	keyOfRefs    = "project, ref"
	keyOfIntents = "project, ref, token"

	requiresAdmission = "refdb_require_admission"
)

// tables returns all tables that any version of the schema has.
func tables(d Dialect) []table {
	switch d {
	case Postgres:
		return postgresTables()
	case Spanner:
		return spannerTables()
	case SQLite:
		return sqliteTables()
	}
	return nil
}

func postgresTables() []table {
	const bytewise, text, instant = `text COLLATE "C"`, "text", "timestamp with time zone"
	return []table{
		{name: "refs", first: 1, key: keyOfRefs, columns: []column{
			{"project", bytewise, 1}, {"ref", bytewise, 1}, {"value", bytewise, 1}, {"time", instant, 1}, {"op", text, 2},
		}, triggers: []routine{{"refdb_record_inserts", 8}, {"refdb_record_updates", 8}, {"refdb_record_deletes", 8}, {requiresAdmission, 9}}},
		{name: "locks", first: 1, key: keyOfRefs, columns: []column{
			{"project", bytewise, 1}, {"ref", bytewise, 1}, {"heartbeat", instant, 1}, {"token", instant, 1}, {"owner", bytewise, 1},
			{"nonce", text, 2}, {"stale_after", "bigint", 2}, {"waiting", "text[]", 2},
		}, indexes: []index{{"locks_owner", "owner"}}, triggers: []routine{{requiresAdmission, 9}}},
		{name: "token_marks", first: 2, last: 4, key: "shard", columns: []column{{"shard", "smallint", 2}, {"mark", instant, 2}}},
		{name: "intents", first: 4, key: keyOfIntents, columns: append(intentColumns(bytewise, instant),
			column{"agent", text, 4}, column{"decision", text, 4}, column{"decided_by", text, 4}, column{"reason", text, 4}, column{"nonce", text, 4}),
			triggers: []routine{{requiresAdmission, 9}, {"refdb_require_witness_begins", 9}, {"refdb_require_witness_ends", 9}, {"refdb_require_decider", 11}}},
		withTriggers(projectTable(bytewise, bytewise, text, text, "bigint", instant), routine{requiresAdmission, 9}),
		auditTable(bytewise, bytewise, text, instant),
		{name: "token_origin", first: 5, key: "id", columns: []column{{"id", "smallint", 5}, {"origin", instant, 5}, {"reached", instant, 5}}},
		{name: "epochs", first: 8, key: "first", columns: []column{
			{"first", "bigint", 8}, {"id", bytewise, 8}, {"began", instant, 8}, {"asked_by", text, 8}, {"reason", text, 8},
		}},
		{name: "history_state", first: 8, key: "id", columns: []column{{"id", "smallint", 8}, {"pruned", "bigint", 8}, {"pruned_time", instant, 8}, {"shift", "bigint", 8}, {"cluster", "bigint", 11}}},
		{name: "history", first: 8, key: "project, ref, position", columns: []column{
			{"project", bytewise, 8}, {"ref", bytewise, 8}, {"position", "bigint", 8}, {"old", bytewise, 8}, {"new", bytewise, 8}, {"time", instant, 8}, {"op", bytewise, 8},
		}, indexes: []index{
			{"history_position", "position, project, ref"}, {"history_project", "project, position, ref"}, {"history_time", "time"}, {"history_blocks", "position, time"},
		}},
		{name: "followers", first: 8, key: "name", columns: []column{{"name", bytewise, 8}, {"cursor", bytewise, 8}, {"read", "bigint", 8}, {"seen", instant, 8}}},
		postgresAdmissionTable(bytewise, instant),
		withTriggers(witnessTable(bytewise, "boolean", instant), routine{"refdb_require_own_row", 11}),
		{name: "site_roles", first: 11, key: "role", columns: []column{{"role", bytewise, 11}, {"site", bytewise, 11}}},
		lostTable(bytewise, "old", "new", "at", "bigint", instant),
		withTriggers(packTable(bytewise, "boolean", "bigint", "integer", instant), routine{requiresAdmission, 10}, routine{"refdb_place_pack", 11}),
		withTriggers(partTable(bytewise, "integer", "bytea"), routine{requiresAdmission, 10}),
	}
}

func spannerTables() []table {
	const text, instant = "STRING(MAX)", "TIMESTAMP"
	return []table{
		{name: "refs", first: 1, key: keyOfRefs, columns: []column{
			{"project", text, 1}, {"ref", text, 1}, {"value", text, 1}, {"time", instant, 1}, {"op", "STRING(64)", 2},
		}, indexes: []index{{"project_time", "project, time"}}},
		{name: "locks", first: 1, key: keyOfRefs, columns: []column{
			{"project", text, 1}, {"ref", text, 1}, {"heartbeat", instant, 1}, {"token", instant, 1}, {"owner", text, 1},
			{"stale_after", "INT64", 2}, {"nonce", text, 6}, {"waiting", "ARRAY<STRING(MAX)>", 6},
		}},
		{name: "intents", first: 4, key: keyOfIntents, columns: append(intentColumns(text, instant),
			column{"agent", text, 4}, column{"decision", "STRING(16)", 4}, column{"decided_by", text, 4}, column{"reason", text, 4}, column{"nonce", text, 8})},
		projectTable(text, "STRING(64)", "STRING(16)", text, "INT64", instant),
		auditTable(text, "STRING(64)", text, instant),
		{name: "history", first: 8, key: "project, ref, position", columns: []column{
			{"project", text, 8}, {"ref", text, 8}, {"position", instant, 8}, {"old_value", text, 8}, {"new_value", text, 8},
			{"op", "STRING(64)", 8}, {"owner", text, 8}, {"asked_by", text, 8}, {"shard", "INT64", 8},
		}, indexes: []index{{"history_shard", "shard, position"}, {"history_project", "project, position"}}},
		{name: "history_state", first: 8, key: "id", columns: []column{{"id", "INT64", 8}, {"begun", instant, 8}, {"pruned", instant, 8}}},
		{name: "epochs", first: 8, key: "first", columns: []column{
			{"first", instant, 8}, {"id", "STRING(64)", 8}, {"began", instant, 8}, {"asked_by", text, 8}, {"reason", text, 8},
		}},
		{name: "followers", first: 8, key: "name", columns: []column{{"name", text, 8}, {"cursor", text, 8}, {"read", "INT64", 8}, {"seen", instant, 8}}},
		admissionTable("INT64", text, "STRING(16)", instant),
		witnessTable(text, "BOOL", instant),
		lostTable(text, "old_value", "new_value", "made", "INT64", instant),
		{name: "packs", first: 10, key: "id", columns: []column{
			{"id", "STRING(64)", 10}, {"project", text, 10}, {"owner", text, 10}, {"bases", "ARRAY<STRING(MAX)>", 10}, {"tips", "ARRAY<STRING(MAX)>", 10}, {"base", "BOOL", 10},
			{"position", instant, 10}, {"kind", "STRING(16)", 10}, {"parts", "INT64", 10}, {"size", "INT64", 10}, {"sum", text, 10}, {"time", instant, 10},
		}, indexes: []index{{"packs_order", "project, position"}, {"packs_kind", "kind, project"}}},
		partTable("STRING(64)", "INT64", "BYTES(MAX)"),
	}
}

func sqliteTables() []table {
	const text, instant = "TEXT", "INTEGER"
	return []table{
		{name: "refs", first: 1, key: keyOfRefs, columns: []column{
			{"project", text, 1}, {"ref", text, 1}, {"value", text, 1}, {"time", instant, 1}, {"op", text, 2},
		}, triggers: []routine{
			{"history_replaced", 8}, {"history_inserted", 8}, {"history_updated", 8}, {"history_deleted", 8}, {"history_renamed", 8},
		}},
		{name: "locks", first: 1, key: keyOfRefs, columns: []column{
			{"project", text, 1}, {"ref", text, 1}, {"heartbeat", instant, 1}, {"token", instant, 1}, {"owner", text, 1},
			{"nonce", text, 2}, {"stale_after", "INTEGER", 2}, {"waiting", text, 6},
		}},
		{name: "token_mark", first: 2, key: "id", columns: []column{{"id", "INTEGER", 2}, {"mark", "INTEGER", 2}}},
		{name: "intents", first: 4, key: keyOfIntents, columns: append(intentColumns(text, instant),
			column{"agent", text, 4}, column{"decision", text, 4}, column{"decided_by", text, 4}, column{"reason", text, 4}, column{"nonce", text, 4})},
		projectTable(text, text, text, text, "INTEGER", instant),
		auditTable(text, text, text, instant),
		{name: "history", first: 8, key: "project, ref, position", columns: []column{
			{"project", text, 8}, {"ref", text, 8}, {"position", "INTEGER", 8}, {"old", text, 8}, {"new", text, 8}, {"time", instant, 8}, {"latest", instant, 8}, {"op", text, 8},
		}, indexes: []index{
			{"history_position", "position, project, ref"}, {"history_project", "project, position, ref"}, {"history_latest", "latest, position"},
		}},
		{name: "history_state", first: 8, key: "id", columns: []column{
			{"id", "INTEGER", 8}, {"position", "INTEGER", 8}, {"time", instant, 8}, {"latest", instant, 8}, {"op", text, 8},
			{"pruned", "INTEGER", 8}, {"pruned_time", instant, 8}, {"replaced", text, 8},
		}},
		{name: "epochs", first: 8, key: "first", columns: []column{
			{"first", "INTEGER", 8}, {"id", text, 8}, {"began", instant, 8}, {"asked_by", text, 8}, {"reason", text, 8},
		}},
		{name: "followers", first: 8, key: "name", columns: []column{{"name", text, 8}, {"cursor", text, 8}, {"read", "INTEGER", 8}, {"seen", instant, 8}}},
		admissionTable("INTEGER", text, text, instant),
		witnessTable(text, "INTEGER", instant),
		lostTable(text, "old", "new", "at", "INTEGER", instant),
		packTable(text, "INTEGER", "INTEGER", "INTEGER", instant),
		partTable(text, "INTEGER", "BLOB"),
	}
}

// intentColumns are the columns of names, values and times.
func intentColumns(text, instant string) []column {
	return []column{
		{"project", text, 4}, {"ref", text, 4}, {"token", instant, 4}, {"owner", text, 4},
		{"old_value", text, 4}, {"new_value", text, 4}, {"time", instant, 4}, {"decided_at", instant, 4},
	}
}

// projectTable takes the kinds of the columns; short is that of the ID and the operation.
func projectTable(name, short, mode, rules, number, instant string) table {
	return table{name: "projects", first: 7, key: "project", columns: []column{
		{"project", name, 7}, {"id", short, 7}, {"rules", rules, 7}, {"mode", mode, 7}, {"revision", number, 7}, {"time", instant, 7}, {"op", short, 7},
		{"store", mode, 10},
	}, indexes: []index{{"projects_revision", "revision"}}}
}

func auditTable(name, id, text, instant string) table {
	return table{name: "audit", first: 7, key: "time, id", columns: []column{
		{"time", instant, 7}, {"id", id, 7}, {"who", text, 7}, {"origin", text, 7}, {"action", text, 7}, {"project", name, 7},
		{"detail", text, 7}, {"reason", text, 7}, {"outcome", text, 7}, {"ended", instant, 7},
	}}
}

// admissionTable takes the types of the columns.
func admissionTable(number, text, policy, instant string) table {
	return table{name: "admission", first: 9, key: "id", columns: []column{
		{"id", number, 9}, {"server", text, 9}, {"since", instant, 9}, {"policy", policy, 12}, {"policy_since", instant, 12},
	}}
}

func postgresAdmissionTable(bytewise, instant string) table {
	t := withTriggers(admissionTable("smallint", bytewise, bytewise, instant),
		routine{"refdb_admit", 11}, routine{"refdb_require_compared", 11}, routine{"refdb_require_policy", 12})
	t.functions = []routine{
		{"refdb_server", 9}, {"refdb_require", 9}, {"refdb_started", 10},
		{"refdb_position", 11}, {"refdb_raise_positions", 11}, {"refdb_recovers", 11}, {"refdb_be_durable", 11},
		{"refdb_require_site", 11}, {"refdb_site_is_gone", 11}, {"refdb_cluster", 11},
		{"refdb_site_key", 12}, {"refdb_site_is_silent", 12}, {"refdb_may_write_row", 12},
	}
	return t
}

func witnessTable(text, boolean, instant string) table {
	return table{name: "witnesses", first: 9, key: "name", columns: []column{
		{"name", text, 9}, {"server", text, 9}, {"seen", instant, 9}, {"away", boolean, 9}, {"without", boolean, 9}, {"since", instant, 9},
		{"word", instant, 12},
	}}
}

// lostTable takes the names of the columns of values and of the time, too.
func lostTable(text, old, new, at, number, instant string) table {
	return table{name: "lost", first: 9, key: "project, ref, op", columns: []column{
		{"project", text, 9}, {"ref", text, 9}, {"op", text, 9}, {old, text, 9}, {new, text, 9}, {"owner", text, 9}, {"asked_by", text, 9},
		{"token", number, 9}, {"move", text, 9}, {at, instant, 9}, {"witness", text, 9}, {"fate", text, 9}, {"reported", instant, 9},
	}}
}

// packTable takes the kinds of the columns; position is that of sizes, too.
func packTable(text, boolean, position, number, instant string) table {
	return table{name: "packs", first: 10, key: "id", columns: []column{
		{"id", text, 10}, {"project", text, 10}, {"owner", text, 10}, {"bases", text, 10}, {"tips", text, 10}, {"base", boolean, 10},
		{"position", position, 10}, {"parts", number, 10}, {"size", position, 10}, {"sum", text, 10}, {"time", instant, 10},
	}, indexes: []index{{"packs_order", "project, position, id"}, {"packs_bases", "project, position, id"}, {"packs_unused", "time"}}}
}

func partTable(text, number, data string) table {
	return table{name: "pack_parts", first: 10, key: "pack, number", columns: []column{{"pack", text, 10}, {"number", number, 10}, {"data", data, 10}}}
}

func withTriggers(t table, triggers ...routine) table {
	t.triggers = triggers
	return t
}

// in reports whether version has the table.
func (t table) in(version uint) bool {
	return t.first <= version && (t.last == 0 || version <= t.last)
}

func (t table) column(name string) bool {
	return slices.ContainsFunc(t.columns, func(c column) bool { return c.name == name })
}
