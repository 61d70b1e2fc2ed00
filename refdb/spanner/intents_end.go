package spanner

import (
	"context"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// Resolve implements driver.IntentStore.
func (d *Driver) Resolve(ctx context.Context, r driver.ResolveRequest) ([]bool, error) {
	q := request{tag: "refdb.resolve", what: "resolve intents"}
	ended, _, err := decide(ctx, d, q, intentsOf(r.Intents), func(b *batch, rows []*intentRow) ([]bool, error) {
		ended := make([]bool, len(r.Intents))
		var ends []rowEnd
		for n, i := range r.Intents {
			row := rows[n]
			if ended[n] = row != nil && rules.Resolvable(&row.IntentRow, r.Decision); !ended[n] {
				continue
			}
			if r.Decision == driver.TakeNew {
				b.putRef(i.Project, i.Ref, row.value, row.New, r.Origin)
			}
			if row.Locked {
				lock := driver.LockInfo{Project: i.Project, Ref: i.Ref, Owner: i.Owner, Token: i.Token}
				ends = append(ends, ending{lock, row.queue, row.now}.to(driver.Waiter{}))
			}
			b.decideIntent(i, &r)
		}
		b.end(ends)
		return ended, nil
	})
	return ended, err
}

// Forget implements driver.IntentStore.
func (d *Driver) Forget(ctx context.Context, intents []driver.LockID) error {
	q := request{tag: "refdb.forget", what: "forget intents"}
	_, _, err := decide(ctx, d, q, intentsOf(intents), func(b *batch, rows []*intentRow) (struct{}, error) {
		for n, i := range intents {
			if rows[n] != nil && !rows[n].Pending {
				b.deleteIntent(i.Project, i.Ref, i.Token)
			}
		}
		return struct{}{}, nil
	})
	return err
}

// intentKey is the key of an intent; Asked is its index in the list.
type intentKey struct {
	Asked   int64     `spanner:"asked"`
	Project string    `spanner:"project"`
	Ref     string    `spanner:"ref"`
	Token   time.Time `spanner:"token"`
	Owner   string    `spanner:"owner"`
}

func (k intentKey) bytes() int { return len(k.Project) + len(k.Ref) + len(k.Owner) + 64 }

// An intentRow is an intent with the value of its ref and the queue of its lock.
type intentRow struct {
	rules.IntentRow
	value driver.Value
	queue queue.Queue
	now   time.Time
}

const intentSQL = `
SELECT k.asked, i.new_value, i.decision IS NULL, l.ref IS NOT NULL, IFNULL(r.value, ''), l.waiting, UNIX_MICROS(CURRENT_TIMESTAMP())
FROM UNNEST(@keys) AS k
JOIN@{JOIN_METHOD=APPLY_JOIN} intents AS i
  ON i.project = k.project AND i.ref = k.ref AND i.token = k.token AND i.owner = k.owner
LEFT JOIN@{JOIN_METHOD=APPLY_JOIN} locks AS l
  ON l.project = k.project AND l.ref = k.ref AND l.token = k.token AND l.owner = k.owner
LEFT JOIN@{JOIN_METHOD=APPLY_JOIN} refs AS r ON r.project = k.project AND r.ref = k.ref`

// intentsOf returns a function that reads and locks the rows of intents, and those of their locks
// and refs. The row of a missing intent is nil.
func intentsOf(intents []driver.LockID) func(context.Context, *transaction) ([]*intentRow, error) {
	keys := make([]intentKey, len(intents))
	for n, i := range intents {
		keys[n] = intentKey{Asked: int64(n), Project: i.Project, Ref: i.Ref, Token: i.Token.Time(), Owner: i.Owner}
	}
	return func(ctx context.Context, t *transaction) ([]*intentRow, error) {
		rows := make([]*intentRow, len(intents))
		s := spanner.Statement{SQL: intentSQL, Params: make(map[string]any)}
		return rows, queryKeys(ctx, t, s, keys, intentKey.bytes, func(r *spanner.Row) error {
			var n, now int64
			var row intentRow
			var waiting []string
			err := r.Columns(&n, (*string)(&row.New), &row.Pending, &row.Locked, (*string)(&row.value), &waiting, &now)
			row.queue, row.now = queue.Read(waiting), time.UnixMicro(now)
			rows[n] = &row
			return err
		})
	}
}

// Finish implements driver.IntentStore.
func (d *Driver) Finish(ctx context.Context, r driver.FinishRequest) error {
	held := rules.Intents(r)
	_, _, err := decide(ctx, d, request{tag: "refdb.finish", what: "finish intents"}, sitesStates(r.Project, r.Owner, updateKeys(r.Done, held.Refs)),
		func(b *batch, states []state) (struct{}, error) { return struct{}{}, planFinish(b, &r, held, states) })
	return err
}

// sitesStates is [statesOf] for a request of an owner, and also reads whether the owner's site is
// barred.
func sitesStates(project, owner string, keys []key) func(context.Context, *transaction) ([]state, error) {
	keys = askBarred(owner, keys)
	s := stateStatement(project)
	s.SQL = stateColumnsSQL + barredColumnSQL + stateRowsSQL
	return func(ctx context.Context, t *transaction) (states []state, err error) {
		err = queryKeys(ctx, t, s, keys, key.bytes, collect(&states, func(row *spanner.Row) (state, error) {
			var barred bool
			s, err := readState(project, row, &barred)
			s.barred = barred
			return s, err
		}))
		return states, err
	}
}

// planFinish decides, given the states, what r writes or why it is refused. r ends the intents in
// held.
func planFinish(b *batch, r *driver.FinishRequest, held driver.Fence, states []state) error {
	if err := refuseBarred(states); err != nil {
		return err
	}
	if rules.Updated(r.ID, rowsOf(states)) {
		return nil
	}
	found := byRef(states)
	missing := rules.Missing(r.Project, held, rules.Intent, found.fence)
	if refused := rules.Finish(*r, missing, found.rows(r.Done)); refused != nil {
		return refused
	}
	if len(r.Done) > MaxRefs {
		// A program without the history prepared these intents, and git has moved the refs.
		// Finishing them without a record, as that program would have done, is better than never
		// finishing them.
		b.unrecorded = true
	}
	for _, u := range r.Done {
		b.putRef(r.Project, u.Ref, found[u.Ref].value(), u.New, r.Origin)
	}
	for _, ref := range held.Refs {
		b.deleteIntent(r.Project, ref, r.Token)
	}
	b.end(found.ends(held.Refs, driver.Waiter{}))
	return nil
}
