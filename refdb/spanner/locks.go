package spanner

import (
	"context"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// staleSQL tells whether a row of locks AS l is stale.
const staleSQL = `TIMESTAMP_DIFF(CURRENT_TIMESTAMP(), IFNULL(l.heartbeat, TIMESTAMP_SECONDS(0)), MICROSECOND)
  > IFNULL(l.stale_after, @default_stale_after)`

// Locks reads a page of locks, or of markers.
func (d *Driver) Locks(ctx context.Context, q refdb.LockQuery) ([]refdb.LockInfo, error) {
	var page []refdb.LockInfo
	err := d.query(ctx, request{tag: "refdb.locks", what: "list locks"}, locksStatement(q), func(r *spanner.Row) error {
		var project, ref string
		var row lockRow
		if err := r.Columns(append([]any{&project, &ref}, row.columns()...)...); err != nil {
			return err
		}
		page = append(page, row.info(project, ref))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

func locksStatement(q refdb.LockQuery) spanner.Statement {
	s := spanner.Statement{
		SQL:    `SELECT l.project, l.ref, ` + lockSQL + ` FROM locks AS l WHERE `,
		Params: map[string]any{"markers": refdb.ReclaimPrefix, "limit": int64(q.Limit)},
	}
	if q.Markers {
		s.SQL += `STARTS_WITH(l.project, @markers)`
	} else {
		s.SQL += `NOT STARTS_WITH(l.project, @markers)`
	}
	and := func(condition, name string, value any) {
		s.SQL += ` AND ` + condition
		s.Params[name] = value
	}
	if q.AfterProject != "" || q.AfterRef != "" {
		// The first part is implied by the second, and bounds the range to read.
		and(`l.project >= @after_project`, "after_project", q.AfterProject)
		and(`(l.project > @after_project OR l.ref > @after_ref)`, "after_ref", q.AfterRef)
	}
	if q.Project != "" {
		and(`l.project = @project`, "project", q.Project)
	}
	if q.Ref != "" {
		and(`l.ref = @ref`, "ref", q.Ref)
	}
	if q.Prefix != "" {
		and(`STARTS_WITH(l.ref, @prefix)`, "prefix", q.Prefix)
	}
	if q.Owner != "" {
		and(`(l.owner = @owner OR STARTS_WITH(l.owner, CONCAT(@owner, '/')))`, "owner", q.Owner)
	}
	if q.Stale {
		and(staleSQL, "default_stale_after", refdb.DefaultStaleAfter.Microseconds())
	}
	if q.OlderThan > 0 {
		and(`TIMESTAMP_DIFF(CURRENT_TIMESTAMP(), IFNULL(l.heartbeat, TIMESTAMP_SECONDS(0)), MICROSECOND) > @older_than`,
			"older_than", q.OlderThan.Microseconds())
	}
	s.SQL += ` ORDER BY l.project, l.ref LIMIT @limit`
	return s
}
