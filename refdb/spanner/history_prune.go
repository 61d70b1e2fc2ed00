package spanner

import (
	"context"
	"strings"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	prunableSQL = `
SELECT c.project, c.ref, c.position, @keep = (SELECT COUNT(*) FROM (
  SELECT n.position FROM history AS n WHERE n.project = c.project AND n.ref = c.ref AND n.position > c.position LIMIT @keep))
FROM (%) AS c ORDER BY c.position, c.project, c.ref`

	prunedSQL = `SELECT UNIX_MICROS(pruned), (SELECT MIN(read) FROM followers) FROM history_state`
)

// A prunable is a change that a pruning request examines.
type prunable struct {
	driver.ChangeKey
	old bool // as many newer changes of its ref exist as are kept
}

// Prune implements driver.HistoryStore. It finds the changes without locks first: a change that is
// old enough remains so, and the transaction reads the other conditions.
func (d *Driver) Prune(ctx context.Context, r driver.PruneRequest) (driver.Pruned, error) {
	q := request{tag: "refdb.prune", what: "prune the history"}
	params := afterParams(r.After, r.Limit)
	params["upto"], params["keep"] = instant(r.Upto), int64(r.Keep)
	s := spanner.Statement{SQL: strings.Replace(prunableSQL, "%", keysOf(afterSQL+` AND h.position <= @upto`), 1), Params: params}
	found, err := readRows(ctx, d, q, readPrunable, q.query(s))
	if err != nil {
		return driver.Pruned{}, err
	}
	p, _, err := decide(ctx, d, q, limitsOfPruning, func(b *batch, limits pruning) (p driver.Pruned, _ error) {
		if len(found) == r.Limit {
			p.Next = found[len(found)-1].ChangeKey
		}
		upto := max(min(r.Upto, limits.unread), min(r.Upto, r.EvenUnread))
		for _, c := range found {
			if c.old && c.Position <= upto {
				b.delete(1+2, "history", spanner.Key{c.Project, c.Ref, instant(c.Position)})
				limits.pruned = max(limits.pruned, c.Position+1)
				p.Deleted++
			}
		}
		if p.Deleted > 0 {
			b.add(2, spanner.Update("history_state", []string{"id", "pruned"}, []any{0, instant(limits.pruned)}))
		}
		return p, nil
	})
	return p, err
}

func readPrunable(row *spanner.Row) (c prunable, err error) {
	var at spanner.NullTime
	err = row.Columns(&c.Project, &c.Ref, &at, &c.old)
	c.Position = positionOf(at.Time)
	return c, err
}

// pruning holds what a transaction that prunes reads.
type pruning struct {
	pruned driver.Position
	unread driver.Position // followers have read all changes up to this position
}

func limitsOfPruning(ctx context.Context, t *transaction) (p pruning, err error) {
	err = t.query(ctx, spanner.NewStatement(prunedSQL), func(row *spanner.Row) error {
		var read spanner.NullInt64
		err := row.Columns((*int64)(&p.pruned), &read)
		p.unread = maxPosition
		if read.Valid {
			p.unread = driver.Position(read.Int64)
		}
		return err
	})
	return p, err
}

var followerColumns = []string{"name", "cursor", "read", "seen"}

const (
	followersSQL = `
SELECT f.name, f.cursor, f.read, f.seen, TIMESTAMP_DIFF(CURRENT_TIMESTAMP(), f.seen, MICROSECOND) FROM followers AS f ORDER BY f.name`

	followerSQL = `SELECT f.name FROM followers AS f WHERE f.name = @name`
)

// Followers implements driver.HistoryStore.
func (d *Driver) Followers(ctx context.Context) ([]driver.Follower, error) {
	r := request{tag: "refdb.followers", what: "list followers"}
	return readRows(ctx, d, r, func(row *spanner.Row) (f driver.Follower, err error) {
		var age int64
		err = row.Columns(&f.Name, &f.Cursor, (*int64)(&f.Read), &f.Seen, &age)
		f.Seen, f.Age = f.Seen.UTC(), micros(age)
		return f, err
	}, r.query(spanner.NewStatement(followersSQL)))
}

// PutFollower implements driver.HistoryStore.
func (d *Driver) PutFollower(ctx context.Context, f driver.Follower) error {
	r := request{tag: "refdb.putfollower", what: "write a follower"}
	_, err := d.transact(ctx, r, func(_ context.Context, t *transaction) error {
		var b batch
		b.add(len(followerColumns), spanner.InsertOrUpdate("followers", followerColumns, []any{f.Name, f.Cursor, int64(f.Read), spanner.CommitTimestamp}))
		return t.write(&b)
	})
	return err
}

// RemoveFollower implements driver.HistoryStore.
func (d *Driver) RemoveFollower(ctx context.Context, name string) (bool, error) {
	r := request{tag: "refdb.removefollower", what: "remove a follower"}
	read := func(ctx context.Context, t *transaction) (there bool, err error) {
		err = t.query(ctx, spanner.Statement{SQL: followerSQL, Params: map[string]any{"name": name}}, func(*spanner.Row) error {
			there = true
			return nil
		})
		return there, err
	}
	found, _, err := decideAnyway(ctx, d, r, read, func(b *batch, there bool) (bool, error) {
		if there {
			b.delete(1, "followers", spanner.Key{name})
		}
		return there, nil
	})
	return found, err
}
