package linearizability

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Client is a [refdb.DB] whose calls are recorded. Its methods are those of
// DB, and may be called concurrently.
type Client struct {
	db         *refdb.DB
	recorder   *Recorder
	staleAfter time.Duration
	calls      *atomic.Int64
}

// Open makes a DB of d, as [refdb.New] does, and records to r the calls of its
// methods. It also records beats and the database's own answers, because the DB's
// methods do not report everything that happened beneath them.
func Open(r *Recorder, d refdb.Driver, o refdb.Options) (*Client, error) {
	c := &Client{recorder: r, staleAfter: cmp.Or(o.StaleAfter, refdb.DefaultStaleAfter), calls: new(atomic.Int64)}
	db, err := refdb.New(recording(d, c), o)
	if err != nil {
		return nil, err
	}
	c.db = db
	return c, nil
}

// Close closes the DB.
func (c *Client) Close() error { return errors.Join(c.db.Close(), c.recorder.Err()) }

// Owner is [refdb.DB.Owner].
func (c *Client) Owner() string { return c.db.Owner() }

// begin records a call, and returns what records its return.
func (c *Client) begin(owner string, in Input) (end func(Output)) {
	id := int(c.calls.Add(1))
	c.recorder.write(line{Time: clock(), Owner: owner, ID: id, Input: &in})
	return func(out Output) {
		c.recorder.write(line{Time: clock(), Owner: owner, ID: id, Output: &out})
	}
}

// Get is [refdb.DB.GetAll].
func (c *Client) Get(ctx context.Context, project string, refs ...string) ([]refdb.Ref, error) {
	end := c.begin(c.Owner(), Input{Kind: Get, Project: project, Refs: refs})
	rows, err := c.db.GetAll(ctx, project, refs...)
	out := answer(err)
	if out.Result == Unknown { // there is no outcome
		out.Result = Nothing
	}
	out.Values = values(rows)
	end(out)
	return rows, err
}

// Update is [refdb.DB.Update].
func (c *Client) Update(ctx context.Context, project string, updates []refdb.Update, opts ...refdb.UpdateOption) error {
	in := newUpdate(project, updates, opts)
	return c.update(ctx, in, func(ctx context.Context) error { return c.db.Update(ctx, project, updates, opts...) })
}

// newUpdate returns the input of an update.
func newUpdate(project string, updates []refdb.Update, opts []refdb.UpdateOption) Input {
	var r driver.UpdateRequest
	for _, o := range opts {
		o(&r)
	}
	in := Input{Kind: Update, Project: project, Updates: updates, Adopt: r.Adopt, Advisory: r.Locks == driver.AdvisoryLocks}
	if r.Fence != nil {
		in.Refs, in.Owner, in.Token = r.Fence.Refs, r.Fence.Owner, r.Fence.Token
	}
	return in
}

func (c *Client) update(ctx context.Context, in Input, do func(context.Context) error) error {
	ctx, made := noteRequests(ctx)
	end := c.begin(c.Owner(), in)
	err := do(ctx)
	got := made.sofar()
	out := answer(err)
	if err != nil && got.updates == 0 {
		// The DB refused by itself, which says nothing about the database.
		out = Output{Result: Nothing, Error: out.Error}
	}
	end(out)
	return err
}

// TryLock is [refdb.DB.TryLock].
func (c *Client) TryLock(ctx context.Context, project string, refs ...string) (*Lock, error) {
	return c.acquire(ctx, project, refs, false, c.db.TryLock)
}

// Lock is [refdb.DB.Lock]. Nothing follows from a call that gave up: it saw the
// holders at some time before.
func (c *Client) Lock(ctx context.Context, project string, refs ...string) (*Lock, error) {
	return c.acquire(ctx, project, refs, true, c.db.Lock)
}

func (c *Client) acquire(ctx context.Context, project string, refs []string, waits bool,
	acquire func(context.Context, string, ...string) (*refdb.Lock, error)) (*Lock, error) {
	ctx, made := noteRequests(ctx)
	end := c.begin(c.Owner(), Input{Kind: Acquire, Project: project, Refs: refs, StaleAfter: c.staleAfter})
	lock, err := acquire(ctx, project, refs...)
	got := made.sofar()
	out := answer(err)
	// If the reply to an acquisition was lost, the DB reports a failure. That is
	// right: the caller has no lock. But its rows may stand for a while.
	// A Lock that gave up leaves its request to the background.
	out.Unresolved = got.unresolved || err != nil && (got.acquired.Token != 0 || waits && got.goesOn)
	if err != nil {
		if waits && out.Result == Locked {
			out = Output{Result: Nothing, Unresolved: out.Unresolved, Error: out.Error}
		}
		end(out)
		return nil, err
	}
	out.Token, out.Values, out.Reclaimed = lock.Token(), make(map[string]refdb.Value), holders(got.acquired.Reclaimed)
	for _, ref := range refs {
		v, err := lock.Value(ref)
		if err != nil {
			panic(err) // a lock has the refs that were asked for
		}
		if v != refdb.Unknown {
			out.Values[ref] = v
		}
	}
	end(out)
	return &Lock{lock, c}, nil
}

// A Lock is a [refdb.Lock] whose calls are recorded.
type Lock struct {
	*refdb.Lock
	client *Client
}

// Update is [refdb.Lock.Update].
func (l *Lock) Update(ctx context.Context, updates []refdb.Update, opts ...refdb.UpdateOption) error {
	return l.update(ctx, updates, opts, false, l.Lock.Update)
}

// UpdateAndRelease is [refdb.Lock.UpdateAndRelease].
func (l *Lock) UpdateAndRelease(ctx context.Context, updates []refdb.Update, opts ...refdb.UpdateOption) error {
	return l.update(ctx, updates, opts, true, l.Lock.UpdateAndRelease)
}

func (l *Lock) update(ctx context.Context, updates []refdb.Update, opts []refdb.UpdateOption, release bool,
	do func(context.Context, []refdb.Update, ...refdb.UpdateOption) error) error {
	in := newUpdate(l.Project(), updates, opts)
	in.Refs, in.Owner, in.Token, in.Release = l.Refs(), l.Owner(), l.Token(), release
	return l.client.update(ctx, in, func(ctx context.Context) error { return do(ctx, updates, opts...) })
}

// Release is [refdb.Lock.Release].
func (l *Lock) Release(ctx context.Context) error {
	ctx, made := noteRequests(ctx)
	refs := l.Refs()
	end := l.client.begin(l.client.Owner(), Input{Kind: Release, Project: l.Project(), Refs: refs, Token: l.Token()})
	err := l.Lock.Release(ctx)
	got := made.sofar()
	out := answer(err)
	out.Unresolved = got.unresolved
	switch {
	case got.released == nil && (got.unresolved || refdb.ClassOf(err) == refdb.Retryable):
		out.Result = Unknown // or it goes on in the background
	case got.released == nil:
		out.Result = Nothing
	case out.Result == Nothing:
		out.Result = Done // its caller gave up, but the answer came
	}
	if got.released != nil {
		for _, ref := range refs {
			if !slices.Contains(got.released.Missing, ref) {
				out.Deleted = append(out.Deleted, ref)
			}
		}
	}
	end(out)
	return err
}
