// Package drivers opens the database at a URL, whatever its kind. It is for
// programs whose users choose the database, and links the clients of all kinds. A
// program that uses one kind needs only that kind's package.
package drivers

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

// URLForms lists the forms of URLs, for messages.
const URLForms = "sqlite:FILE (embedded, one machine), postgres://USER@HOST/DATABASE or " +
	"spanner://projects/P/instances/I/databases/D"

// Open opens the database at url, which has one of [URLForms]; the Open of each
// driver's package documents its form. An error wraps [driver.ErrInvalid] if url is
// empty, malformed or of an unknown scheme, and [driver.ErrSchema] if the database
// must be migrated first.
func Open(ctx context.Context, url string) (driver.Driver, error) {
	dialect, err := DialectOf(url)
	if err != nil {
		return nil, err
	}
	switch dialect {
	case migrations.SQLite:
		return opened(sqlite.Open(ctx, url))
	case migrations.Postgres:
		return opened(postgres.Open(ctx, url))
	case migrations.Spanner:
		return opened(spanner.Open(ctx, url))
	}
	return nil, fmt.Errorf("open the database: %w: %s has no driver", driver.ErrInvalid, dialect)
}

// opened returns a nil Driver, not a Driver that holds a nil pointer, with an error.
func opened[D driver.Driver](d D, err error) (driver.Driver, error) {
	if err != nil {
		return nil, err
	}
	return d, nil
}

// dialects are the kinds of databases, by scheme.
var dialects = map[string]migrations.Dialect{
	"sqlite":     migrations.SQLite,
	"postgres":   migrations.Postgres,
	"postgresql": migrations.Postgres,
	"spanner":    migrations.Spanner,
}

// schemeForm matches a scheme. A message may repeat only that part of a URL: the rest
// may hold a password.
var schemeForm = regexp.MustCompile(`(?i)^[a-z][a-z0-9+.-]*$`)

// DialectOf returns the kind of the database at url. It looks at the scheme
// only: the rest may still be malformed. An error wraps [driver.ErrInvalid].
func DialectOf(url string) (migrations.Dialect, error) {
	scheme, _, found := strings.Cut(url, ":")
	dialect, known := dialects[scheme]
	switch {
	case found && known:
		return dialect, nil
	case url == "":
		return "", fmt.Errorf("%w database URL: it is empty: give %s", driver.ErrInvalid, URLForms)
	case !found || !schemeForm.MatchString(scheme):
		return "", fmt.Errorf("%w database URL: it has no scheme: give %s", driver.ErrInvalid, URLForms)
	default:
		return "", fmt.Errorf("%w database URL: unknown database scheme %q: give %s", driver.ErrInvalid, scheme, URLForms)
	}
}
