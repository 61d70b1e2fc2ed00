package projects

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// modePrefix begins the refs, in [presence.Project], by which each site says what it does about a
// project that is not in mode enforce: refs/modes/PROJECT-ID/SITE.
func modePrefix(projectID string) string { return "refs/modes/" + projectID + "/" }

// RecordRef returns the ref of a site's [Record].
func RecordRef(projectID, site string) string { return modePrefix(projectID) + site }

// A Record is the value of such a ref. Without a digest it is a grant: the site may let pushes
// through that the database did not agree to, until it writes another record. With a digest it is
// a report: the site lets no such push through, and its refs have the digest.
type Record struct {
	Revision int64 // of the project's row by which it is written
	Digest   string
}

// NoRepository is the digest that a site without a repository of the project reports.
const NoRepository = "none"

// Value returns the value of the ref.
func (r Record) Value() refdb.Value {
	if r.Digest == "" {
		return refdb.Value(fmt.Sprintf("grant %d", r.Revision))
	}
	return refdb.Value(fmt.Sprintf("report %d %s", r.Revision, r.Digest))
}

// parseModeRecord returns a grant for a value that it can't read: that a site lets no pushes through must be certain.
func parseModeRecord(v refdb.Value) Record {
	f := strings.Fields(string(v))
	if len(f) == 3 && f[0] == "report" {
		if revision, err := strconv.ParseInt(f[1], 10, 64); err == nil {
			return Record{revision, f[2]}
		}
	}
	return Record{}
}
