// Package drivers opens the database at a URL, of whichever kind it is. It is
// for programs whose users choose the database; it links the clients of all
// kinds. A program that knows its kind needs that one's package only.
package drivers

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

// URLForms says what URLs look like, for messages.
const URLForms = "sqlite:FILE (embedded, one machine), postgres://USER@HOST/DATABASE or " +
	"spanner://projects/P/instances/I/databases/D"

// Open opens the database at url, which is one of [URLForms]; each driver's own
// Open says more about its form. An error wraps [refdb.ErrInvalid] if there is
// no such database whatever the server says: url is empty, malformed or of no
// known scheme. It wraps [refdb.ErrSchema] if the database must be migrated first.
func Open(ctx context.Context, url string) (refdb.Driver, error) {
	dialect, err := DialectOf(url)
	if err != nil {
		return nil, err
	}
	switch dialect {
	case migrations.SQLite:
		return driver(sqlite.Open(ctx, url))
	case migrations.Postgres:
		return driver(postgres.Open(ctx, url))
	default:
		return driver(spanner.Open(ctx, url))
	}
}

// driver keeps a nil pointer from becoming a Driver.
func driver[D refdb.Driver](d D, err error) (refdb.Driver, error) {
	if err != nil {
		return nil, err
	}
	return d, nil
}

// dialects are the kinds of the known schemes.
var dialects = map[string]migrations.Dialect{
	"sqlite":     migrations.SQLite,
	"postgres":   migrations.Postgres,
	"postgresql": migrations.Postgres,
	"spanner":    migrations.Spanner,
}

// schemeForm is what may be repeated of a URL: the rest may hold a password.
var schemeForm = regexp.MustCompile(`(?i)^[a-z][a-z0-9+.-]*$`)

// DialectOf returns the kind of the database at url. It looks at the scheme
// only: the rest may still be malformed. An error wraps [refdb.ErrInvalid].
func DialectOf(url string) (migrations.Dialect, error) {
	scheme, _, found := strings.Cut(url, ":")
	dialect, known := dialects[scheme]
	switch {
	case found && known:
		return dialect, nil
	case url == "":
		return "", fmt.Errorf("%w database URL: it is empty: give %s", refdb.ErrInvalid, URLForms)
	case !found || !schemeForm.MatchString(scheme):
		return "", fmt.Errorf("%w database URL: it has no scheme: give %s", refdb.ErrInvalid, URLForms)
	default:
		return "", fmt.Errorf("%w database URL: unknown database scheme %q: give %s", refdb.ErrInvalid, scheme, URLForms)
	}
}
