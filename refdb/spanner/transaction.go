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

// rollbackTimeout bounds the request that releases the row locks of a transaction that failed
// before its commit. Without that request, Spanner releases them later.
const rollbackTimeout = time.Second

// maxForgotten is how often a transaction is begun again because of [Driver.emulatorForgot]. After
// that, the session counts as lost.
const maxForgotten = 3

// A transaction is one attempt at a read-write transaction.
type transaction struct {
	txn    *spanner.ReadWriteStmtBasedTransaction
	tag    string
	writes bool
}

// decide is decideAnyway for a request that requires an admitted server, as far as the driver
// knows.
func decide[T, A any](ctx context.Context, d *Driver, r request, read func(context.Context, *transaction) (T, error), plan func(*batch, T) (A, error)) (answer A, at time.Time, err error) {
	if err := d.requireAdmission(r); err != nil {
		return answer, at, err
	}
	return decideAnyway(ctx, d, r, read, plan)
}

// decideAnyway runs a transaction: read reads rows, and plan decides what to write and to answer.
// An error of plan is a refusal: decideAnyway returns it, with the answer, after plan's writes are
// committed. If the transaction fails, there is no answer.
func decideAnyway[T, A any](ctx context.Context, d *Driver, r request, read func(context.Context, *transaction) (T, error), plan func(*batch, T) (A, error)) (answer A, at time.Time, err error) {
	var refused error
	at, err = d.transact(ctx, r, func(ctx context.Context, t *transaction) error {
		found, err := read(ctx, t)
		if err != nil {
			return err
		}
		var b batch
		answer, refused = plan(&b, found)
		return t.write(&b)
	})
	if err != nil {
		return *new(A), at, err
	}
	if refused != nil {
		err = failed(r.what, refused)
	}
	return answer, at, err
}

// queryKeys is query for the rows of keys, in as many requests as the keys need.
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

// write adds b to the commit.
func (t *transaction) write(b *batch) error {
	if err := b.check(); err != nil || b.cost == 0 {
		return err
	}
	t.writes = true
	return t.txn.BufferWrite(b.all())
}

// transact runs f in a read-write transaction and returns its commit timestamp. It runs f again
// when Spanner aborts the attempt, which is how Spanner resolves conflicts. f then discards the
// decisions of the previous attempt.
//
// A refusal is committed too, even if nothing is written: only a commit proves that all reads were
// consistent at one time. It costs no more than a rollback.
//
// The client's own loop (Client.ReadWriteTransaction) is not used, because it also runs f again
// after some errors that leave the outcome of the commit open, without saying so.
func (d *Driver) transact(ctx context.Context, r request, f func(context.Context, *transaction) error) (time.Time, error) {
	c, ctx, err := d.begin(ctx)
	if err != nil {
		return time.Time{}, failed(r.what, err)
	}
	defer c.end()
	if err := d.emulatorMutex.lock(ctx); err != nil {
		return time.Time{}, d.translate(ctx, c, r.what, err, false)
	}
	defer d.emulatorMutex.unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(r.timeout, requestTimeout)+d.patience, errNoAnswer)
	defer cancel()

	options := spanner.TransactionOptions{
		TransactionTag: r.tag,
		// These are Spanner's defaults, but correctness depends on them.
		IsolationLevel: spannerpb.TransactionOptions_SERIALIZABLE,
		ReadLockMode:   spannerpb.TransactionOptions_ReadWrite_PESSIMISTIC,
		// The first query begins the transaction, which saves a round trip.
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
			err = d.renewSession(c, err, forgotten == maxForgotten)
		}
		if !aborted && err != nil {
			if forgotten++; unresolved || forgotten > maxForgotten || !d.emulatorForgot(err) {
				return time.Time{}, d.translate(ctx, c, r.what, err, unresolved)
			}
		}
		delay, told := spanner.ExtractRetryDelay(err)
		if !told {
			delay = pause.Pause()
		}
		if ended := gax.Sleep(ctx, delay); ended != nil {
			return time.Time{}, d.translate(ctx, c, r.what, cmp.Or(err, ended), false)
		}
		var next *spanner.ReadWriteStmtBasedTransaction
		if aborted && txn != nil {
			// The transaction keeps its age: Spanner prefers it to transactions that began after
			// its first attempt.
			next, err = txn.ResetForRetry(ctx)
		} else {
			next, err = spanner.NewReadWriteStmtBasedTransactionWithOptions(ctx, c.client.Client, options)
		}
		if err == nil {
			txn = next
		}
	}
}

// attempt runs f and commits. unresolved reports that the commit may have happened despite the
// error.
func (c *call) attempt(ctx context.Context, t *transaction, f func(context.Context, *transaction) error) (at time.Time, unresolved bool, err error) {
	c.commits.Store(0)
	if err = f(ctx, t); err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if spanner.ErrCode(err) != codes.Aborted {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
			defer cancel()
			t.txn.Rollback(ctx)
		}
		return time.Time{}, false, err
	}
	at, err = t.txn.Commit(ctx)
	return at, err != nil && t.writes && mayHaveHappened(spanner.ErrCode(err), c.commits.Load()), err
}
