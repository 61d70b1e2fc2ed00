package packs

import (
	"context"
	"iter"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// List iterates over the used packs of a project, in their order. It stops after an error.
func List(ctx context.Context, db *refdb.DB, project string) iter.Seq2[driver.Pack, error] {
	return func(yield func(driver.Pack, error) bool) {
		q := driver.PackQuery{Project: project, Limit: listLimit}
		for {
			page, err := db.Packs().Page(ctx, q)
			if err != nil {
				yield(driver.Pack{}, err)
				return
			}
			for _, p := range page.Packs {
				if !yield(p, nil) {
					return
				}
				q.After = p.Key()
			}
			if !page.More {
				return
			}
		}
	}
}
