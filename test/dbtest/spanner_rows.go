package dbtest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	client "cloud.google.com/go/spanner"
	databaseadmin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"google.golang.org/api/iterator"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest/internal/testdb"
)

type spannerRows struct {
	client *client.Client
	name   string
	// The emulator runs one read-write transaction of a client at a time.
	writing sync.Mutex
}

func (r *spannerRows) Close() { r.client.Close() }

func (r *spannerRows) Now(ctx context.Context) (t time.Time, err error) {
	err = one(r.client.Single().Query(ctx, client.NewStatement(`SELECT CURRENT_TIMESTAMP()`)), &t)
	return t.UTC(), err
}

func (r *spannerRows) Age(ctx context.Context, project, ref string, d time.Duration) (int64, error) {
	return r.write(ctx, client.Statement{
		SQL: `UPDATE locks SET heartbeat = TIMESTAMP_SUB(heartbeat, INTERVAL @by MICROSECOND)
			WHERE project = @project AND ref = @ref`,
		Params: map[string]any{"project": project, "ref": ref, "by": d.Microseconds()},
	})
}

func (r *spannerRows) InsertLock(ctx context.Context, l refdb.LockInfo) error {
	s := client.Statement{Params: map[string]any{
		"project": l.Project, "ref": l.Ref, "owner": l.Owner, "age": l.Age.Microseconds(), "token": l.Token.Time(),
	}}
	heartbeat := `TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL @age MICROSECOND)`
	if l.Age == 0 {
		heartbeat = `PENDING_COMMIT_TIMESTAMP()`
	}
	token := `@token`
	if l.Token == 0 {
		token = `PENDING_COMMIT_TIMESTAMP()`
	}
	s.SQL = fmt.Sprintf(`INSERT INTO locks (project, ref, heartbeat, token, owner)
		VALUES (@project, @ref, %s, %s, @owner)`, heartbeat, token)
	_, err := r.write(ctx, s)
	return err
}

func (r *spannerRows) TakeOver(ctx context.Context, project, ref, owner string) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	_, err := r.client.Apply(ctx, []*client.Mutation{client.Update("locks",
		[]string{"project", "ref", "heartbeat", "token", "owner"}, []any{project, ref, client.CommitTimestamp, client.CommitTimestamp, owner})})
	return err
}

func (r *spannerRows) InsertRef(ctx context.Context, project, ref string, v refdb.Value) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	_, err := r.client.Apply(ctx, []*client.Mutation{client.InsertOrUpdate("refs",
		[]string{"project", "ref", "value", "time"}, []any{project, ref, string(v), client.CommitTimestamp})})
	return err
}

var schemaChange = regexp.MustCompile(`^(?i)\s*(CREATE|ALTER|DROP)\s`)

func (r *spannerRows) Exec(ctx context.Context, sql string, args []any) error {
	if schemaChange.MatchString(sql) {
		return administer(ctx, func(ctx context.Context, a *databaseadmin.DatabaseAdminClient) error {
			op, err := a.UpdateDatabaseDdl(ctx, &databasepb.UpdateDatabaseDdlRequest{Database: r.name, Statements: []string{sql}})
			if err != nil {
				return err
			}
			return op.Wait(ctx)
		})
	}
	s := client.Statement{SQL: sql, Params: map[string]any{}}
	for i, arg := range args {
		s.Params[fmt.Sprintf("p%d", i+1)] = arg
	}
	_, err := r.write(ctx, s)
	return err
}

func (r *spannerRows) Lock(ctx context.Context, project, ref string) (refdb.LockInfo, bool, error) {
	l := refdb.LockInfo{Project: project, Ref: ref}
	var token, heartbeat *time.Time
	var staleAfter *int64
	var now time.Time
	err := one(r.client.Single().Query(ctx, client.Statement{
		SQL: `SELECT owner, token, heartbeat, stale_after, CURRENT_TIMESTAMP() FROM locks
			WHERE project = @project AND ref = @ref`,
		Params: map[string]any{"project": project, "ref": ref},
	}), &l.Owner, &token, &heartbeat, &staleAfter, &now)
	if errors.Is(err, iterator.Done) {
		return refdb.LockInfo{}, false, nil
	}
	testdb.Fill(&l, token, heartbeat, staleAfter, now)
	return l, err == nil, err
}

func (r *spannerRows) write(ctx context.Context, s client.Statement) (rows int64, err error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	_, err = r.client.ReadWriteTransaction(ctx, func(ctx context.Context, txn *client.ReadWriteTransaction) error {
		rows, err = txn.Update(ctx, s)
		return err
	})
	return rows, err
}

// one reads the only row.
func one(rows *client.RowIterator, into ...any) error {
	defer rows.Stop()
	row, err := rows.Next()
	if err != nil {
		return err
	}
	return row.Columns(into...)
}
