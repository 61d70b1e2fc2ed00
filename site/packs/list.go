package packs

import (
	"context"
	"iter"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// List iterates over the used packs of a project, in their order. An error ends it.
func List(ctx context.Context, db *refdb.DB, project string) iter.Seq2[refdb.Pack, error] {
	return func(yield func(refdb.Pack, error) bool) {
		q := refdb.PackQuery{Project: project, Limit: listLimit}
		for {
			page, err := db.Packs(ctx, q)
			if err != nil {
				yield(refdb.Pack{}, err)
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
