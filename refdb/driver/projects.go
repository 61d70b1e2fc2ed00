package driver

import "time"

// A Project is the row that tells all sites how to guard one project.
type Project struct {
	Project string
	ID      string // random; every copy of its repository records it
	Rules   string // which refs are guarded, a rule per line; in rows that a driver returns, the line of the Freeze comes first
	// Freeze is zero unless the project is frozen. Package projects sets it: a driver leaves it in
	// Rules. See [CutFreeze].
	Freeze Freeze
	Mode   string // whether refusals count
	Store  string // which of its objects the database keeps

	Revision int64         // larger than that of any earlier change of any project
	Time     time.Time     // the database's, of that change
	Age      time.Duration // the database's now − Time
	Op       string        // the request that wrote the row
}

// IsNew reports whether the row is as it was created: the database had no rules before.
func (p Project) IsNew() bool { return p.Op == p.ID }

// A ProjectQuery selects rows for [ProjectStore.Projects].
type ProjectQuery struct {
	Project string // "" for all
	After   int64  // revisions larger than that
	Limit   int
}

// A ProjectRequest is what [ProjectStore.PutProject] writes. Rules include the line of the freeze, if
// any, as [WithFreeze] returns them.
type ProjectRequest struct {
	Project, ID, Rules, Mode, Store string
	Revision                        int64  // the row's present one; 0 for no row
	Op                              string // names this request
}
