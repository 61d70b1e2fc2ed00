package projects

import (
	"context"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

const (
	// mirrorPrefix begins the refs, in [presence.Project], that declare projects mirrors: refs/mirrors/PROJECT-ID. So a declaration
	// stays with a project that is moved, and no other project inherits it with the name.
	mirrorPrefix = "refs/mirrors/"
	// mirrorValue begins the value of such a ref; the name of the site follows that fetches.
	mirrorValue = "site "
)

// Mirror returns the site that alone fetches a project, by git fetch from a repository that is no copy of the project; "" if the
// project is not declared a mirror.
func Mirror(ctx context.Context, db *refdb.DB, row driver.Project) (site string, err error) {
	if row.ID == "" {
		return "", nil
	}
	value, err := db.Get(ctx, presence.Project, mirrorPrefix+row.ID)
	if err != nil {
		return "", err
	}
	return mirrorSite(value), nil
}

func mirrorSite(v refdb.Value) string {
	site, ok := strings.CutPrefix(string(v), mirrorValue)
	if !ok {
		return ""
	}
	return site
}

// SetMirror declares a project a mirror that the site alone fetches, in the place of the site before; with "" before, the project was none,
// and with "" site it is none afterwards. If it was declared otherwise meanwhile the error wraps [refdb.ErrMismatch].
func SetMirror(ctx context.Context, db *refdb.DB, row driver.Project, before, site string) error {
	value := func(site string) refdb.Value {
		if site == "" {
			return refdb.Deleted
		}
		return refdb.Value(mirrorValue + site)
	}
	return db.Update(ctx, presence.Project, []refdb.Update{{Ref: mirrorPrefix + row.ID, Old: value(before), New: value(site)}})
}

// EndMirrorsAt takes back that projects are mirrors that the site fetches: the site is gone for good.
func EndMirrorsAt(ctx context.Context, db *refdb.DB, site string) error {
	for ref, err := range db.Refs(ctx, presence.Project, mirrorPrefix) {
		if err == nil && mirrorSite(ref.Value) == site {
			err = db.Update(ctx, presence.Project, []refdb.Update{{Ref: ref.Name, Old: ref.Value, New: refdb.Deleted}})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
