package main

import (
	"context"
	"errors"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
)

// The names that all contestants use.
const (
	project = "bench/project"
	owner   = "bench/worker"
)

// openRefdb opens refdb on a migrated database, as an application would.
func openRefdb(ctx context.Context, url string, observe func(refdb.Event)) (*refdb.DB, error) {
	d, err := drivers.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	db, err := refdb.New(d, refdb.Options{Site: "bench", Observe: observe})
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return db, nil
}

// seedRefdb inserts refs that hold the value.
func seedRefdb(ctx context.Context, db *refdb.DB, refs []string, value string) error {
	for len(refs) > 0 {
		n := min(len(refs), refdb.MaxUpdateRefs)
		updates := make([]refdb.Update, n)
		for i, ref := range refs[:n] {
			updates[i] = refdb.Update{Ref: ref, New: refdb.Value(value)}
		}
		if err := db.Update(ctx, project, updates); err != nil {
			return err
		}
		refs = refs[n:]
	}
	return nil
}
