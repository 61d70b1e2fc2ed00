package driver

import "time"

// A Project is the row with a project's settings, which apply at all sites.
type Project struct {
	Project string
	ID      string // random; every copy of its repository records it
	// Rules are the rules for guarded refs, one per line. In rows that a driver returns, the first line
	// is that of the Freeze, if any.
	Rules string
	// Freeze is zero unless the project is frozen. Package projects sets it; a driver leaves the
	// line of the freeze in Rules. See [CutFreeze].
	Freeze Freeze
	Mode   string // whether refusals are enforced
	Store  string // which of its objects the database keeps

	Revision int64         // larger than that of any earlier change of any project
	Time     time.Time     // the time of the latest change, by the database's clock
	Age      time.Duration // the database's now − Time
	Op       string        // the request that wrote the row
}

// IsNew reports whether the row has not changed since it was created, so that the database had no
// earlier rules for the project.
func (p Project) IsNew() bool { return p.Op == p.ID }

// A ProjectQuery selects rows for [ProjectStore.Projects].
type ProjectQuery struct {
	Project string // "" for all projects
	After   int64  // only rows with a larger revision
	Limit   int
}

// A ProjectRequest is a request to [ProjectStore.PutProject]. Rules include the line of the freeze,
// if any, as returned by [WithFreeze].
type ProjectRequest struct {
	Project, ID, Rules, Mode, Store string
	Revision                        int64  // the row's present revision; 0 for no row
	Op                              string // identifies this request
}
