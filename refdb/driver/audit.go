package driver

import "time"

// An AuditEntry is one action of an operator.
type AuditEntry struct {
	Time    time.Time // the database's, before the action
	ID      string
	Who     string // user@host, and the user who called sudo
	Origin  string // where the operator came from: a host, an address
	Action  string // the command
	Project string // "" if the action is about no project, or about several
	Detail  string // the object of the action
	Reason  string // "" if none was given
	Outcome string // "" if unknown
	Ended   time.Time
}

// Cursor returns the entry's cursor.
func (e AuditEntry) Cursor() AuditCursor { return AuditCursor{e.Time, e.ID} }

// An AuditCursor names an entry.
type AuditCursor struct {
	Time time.Time
	ID   string
}

// An AuditQuery selects a page of entries. Zero fields select all.
type AuditQuery struct {
	Project string
	Since   time.Time   // only entries of this time or later
	After   AuditCursor // only entries after this; zero to start
	Limit   int
}

// An AuditPage is a page of entries. Next is the cursor of the last entry if there may be more
// entries.
type AuditPage struct {
	Entries []AuditEntry
	Next    AuditCursor
}
