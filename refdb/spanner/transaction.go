package spanner

import (
	"cmp"
	"context"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/grpc/codes"
)

// rollbackTime bounds the request that lets go of the locks of a transaction
// that failed before its commit. Spanner takes them back by itself otherwise,
// only later.
const rollbackTime = time.Second

// maxForgotten is how often a transaction is begun anew because of
// [Driver.forgot], before that is laid to the session.
const maxForgotten = 3

// A transaction is one attempt at a read-write transaction.
type transaction struct {
	txn    *spanner.ReadWriteStmtBasedTransaction
	tag    string
	writes bool
}

// decide runs a transaction that writes what plan makes of what read has found.
// An error of plan is a refusal: decide fails with it, after plan's writes were committed.
func decide[T any](ctx context.Context, d *Driver, r request, read func(context.Context, *transaction) (T, error), plan func(*batch, T) error) (time.Time, error) {
	var refused error
	at, err := d.transact(ctx, r, func(ctx context.Context, t *transaction) error {
		found, err := read(ctx, t)
		if err != nil {
			return err
		}
		var b batch
		refused = plan(&b, found)
		return t.write(&b)
	})
	if err == nil && refused != nil {
		err = failed(r.what, refused)
	}
	return at, err
}

// queryKeys is query for rows that keys name, in as many requests as those need.
func queryKeys[K any](ctx context.Context, t *transaction, s spanner.Statement, keys []K, size func(K) int, each func(*spanner.Row) error) error {
	for chunk := range chunks(keys, size) {
		s.Params["keys"] = chunk
		if err := t.query(ctx, s, each); err != nil {
			return err
		}
	}
	return nil
}

// query reads rows and locks them until the end of the transaction.
func (t *transaction) query(ctx context.Context, s spanner.Statement, each func(*spanner.Row) error) error {
	return t.txn.QueryWithOptions(ctx, s, spanner.QueryOptions{RequestTag: t.tag}).Do(each)
}

// write has the commit carry b.
func (t *transaction) write(b *batch) error {
	if err := b.check(); err != nil || b.cost == 0 {
		return err
	}
	t.writes = true
	return t.txn.BufferWrite(b.all())
}

// transact runs f in a read-write transaction and returns its commit timestamp.
// It runs f again when Spanner aborts the attempt, which is how it resolves
// conflicts; what f decided in an attempt before means nothing then.
//
// A refusal is committed too, although nothing is written: only a commit
// proves that all that was read was true at one time. It costs no more than
// the rollback would.
//
// The client's own loop (Client.ReadWriteTransaction) is not used: it also runs
// f again after some errors that leave open whether the commit happened, and
// doesn't say so.
func (d *Driver) transact(ctx context.Context, r request, f func(context.Context, *transaction) error) (time.Time, error) {
	c, ctx, err := d.begin(ctx)
	if err != nil {
		return time.Time{}, failed(r.what, err)
	}
	defer c.end()
	if err := d.gate.enter(ctx); err != nil {
		return time.Time{}, d.judge(ctx, c, r.what, err, false)
	}
	defer d.gate.leave()
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(r.within, patience), errNoAnswer)
	defer cancel()

	options := spanner.TransactionOptions{
		TransactionTag: r.tag,
		// Spanner's defaults, but all rests on them.
		IsolationLevel: spannerpb.TransactionOptions_SERIALIZABLE,
		ReadLockMode:   spannerpb.TransactionOptions_ReadWrite_PESSIMISTIC,
		// The first query begins the transaction: no round trip of its own.
		BeginTransactionOption: spanner.InlinedBeginTransaction,
	}
	txn, err := spanner.NewReadWriteStmtBasedTransactionWithOptions(ctx, c.client.Client, options)
	pause := gax.Backoff{Initial: 10 * time.Millisecond, Max: 500 * time.Millisecond, Multiplier: 1.5}
	for forgotten := 0; ; {
		var at time.Time
		var unresolved bool
		if err == nil {
			at, unresolved, err = c.attempt(ctx, &transaction{txn: txn, tag: r.tag}, f)
		}
		if err == nil {
			return at, nil
		}
		aborted := spanner.ErrCode(err) == codes.Aborted
		if !aborted && !unresolved {
			err = d.renew(c, err, forgotten == maxForgotten)
		}
		if !aborted && err != nil {
			if forgotten++; unresolved || forgotten > maxForgotten || !d.forgot(err) {
				return time.Time{}, d.judge(ctx, c, r.what, err, unresolved)
			}
		}
		delay, told := spanner.ExtractRetryDelay(err)
		if !told {
			delay = pause.Pause()
		}
		if ended := gax.Sleep(ctx, delay); ended != nil {
			return time.Time{}, d.judge(ctx, c, r.what, cmp.Or(err, ended), false)
		}
		var next *spanner.ReadWriteStmtBasedTransaction
		if aborted && txn != nil {
			// It keeps its age: Spanner prefers it over those that began after its first attempt.
			next, err = txn.ResetForRetry(ctx)
		} else {
			next, err = spanner.NewReadWriteStmtBasedTransactionWithOptions(ctx, c.client.Client, options)
		}
		if err == nil {
			txn = next
		}
	}
}

// forgot reports whether err may be that of a transaction that an emulator has
// forgotten. It does so when another begins in the same session, and then the
// gate is no help: a request that was given up may begin one later. An emulator that
// was restarted also gives session names again, so that another process may be
// at work in this one's session for good.
func (d *Driver) forgot(err error) bool {
	code := spanner.ErrCode(err)
	return d.emulator != "" && !sessionLost(err) && (code == codes.NotFound || code == codes.FailedPrecondition)
}

// attempt runs f and commits. unresolved says that the commit may have happened
// in spite of the error.
func (c *call) attempt(ctx context.Context, t *transaction, f func(context.Context, *transaction) error) (at time.Time, unresolved bool, err error) {
	c.commits.Store(0)
	if err = f(ctx, t); err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if spanner.ErrCode(err) != codes.Aborted {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
			defer cancel()
			t.txn.Rollback(ctx)
		}
		return time.Time{}, false, err
	}
	at, err = t.txn.Commit(ctx)
	return at, err != nil && t.writes && mayHaveHappened(spanner.ErrCode(err), c.commits.Load()), err
}
