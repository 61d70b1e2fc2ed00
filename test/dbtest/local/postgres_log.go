package local

import "strings"

// logPrefix begins a line of PostgreSQL's log with its time and process, and with the
// database, which is empty in lines about the whole server.
const logPrefix = "%m [%p] database=%d "

// aboutDatabase keeps the lines of PostgreSQL's log about a database, or about the whole server.
func aboutDatabase(name string) func(line string) bool {
	keep := false
	return func(line string) bool {
		// A line without a prefix goes on with what the line before began.
		if _, about, ok := strings.Cut(line, " database="); ok && !strings.HasPrefix(line, "\t") {
			keep = strings.HasPrefix(about, " ") || strings.HasPrefix(about, name+" ")
		}
		return keep
	}
}
