package migrations

import "strings"

// rows are the tables of which one row, which a migration wrote, must never be missing. Without it requests fail. On
// Spanner those requests name the row.
func rows(d Dialect) []string {
	switch d {
	case Postgres:
		return []string{"admission", "epochs", "history_state", "token_origin"}
	case SQLite:
		return []string{"admission", "epochs", "history_state", "token_mark"}
	}
	return nil
}

// RowsSQL returns the query for the tables whose row is missing, on PostgreSQL and SQLite. Unlike the queries for a [Catalogue]
// it needs the privilege to read them.
func RowsSQL(d Dialect) string {
	var each []string
	for _, t := range rows(d) {
		each = append(each, `SELECT '`+t+`' WHERE NOT EXISTS (SELECT 1 FROM `+t+`)`)
	}
	return strings.Join(each, ` UNION ALL `)
}

// MissingRows says that the rows of those tables are missing, and what to do.
func MissingRows(d Dialect, tables []string) string {
	var all []fault
	for _, t := range tables {
		all = append(all, fault{text: "the row of " + t + " is missing", repeatable: true})
	}
	return NewCatalogue(d).report(all)
}
