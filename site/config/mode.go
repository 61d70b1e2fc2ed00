package config

// The modes of a project, which are the same at all sites.
const (
	// Enforce refuses what the database does not agree to.
	Enforce = "enforce"
	// Log refuses nothing. The daemons report what they would have refused.
	Log = "log"
	// Comparing is between Log and Enforce: everything is refused, so that the sites' refs can be
	// compared with the database.
	Comparing = "comparing"
	// Removed refuses everything: the project was removed, and its row is what tells the sites.
	Removed = "removed"
)

// KnownMode reports whether this version knows the mode.
func KnownMode(mode string) bool {
	return mode == Enforce || mode == Log || mode == Comparing || mode == Removed
}
