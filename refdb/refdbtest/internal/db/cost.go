package db

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

func costRows() []row {
	return []row{
		{"P8 holding many locks costs one beat per tick", func(e *env) {
			const interval = 250 * time.Millisecond
			locks := e.Scale(1000)
			db, faulty := e.OpenFaulty(refdb.Options{Heartbeat: interval, StaleAfter: time.Hour})
			errs := make([]error, 4)
			var taking sync.WaitGroup
			for i := range errs {
				taking.Go(func() {
					for n := i; n < locks && errs[i] == nil; n += len(errs) {
						_, errs[i] = db.TryLock(e.Context(), e.Project, fmt.Sprintf("refs/heads/%d", n))
					}
				})
			}
			taking.Wait()
			e.Must(errors.Join(errs...))

			beats := make(chan int, 100)
			start := time.Now()
			faulty.Inject(func(c suite.Call) error {
				if c.Method == "Beat" {
					beats <- len(c.Arg.([]driver.LockID))
				}
				return c.Do()
			})
			suite.Receive(e, beats, "a beat") // which may have begun before the last locks were taken
			const ticks = 3
			for range ticks {
				if rows := suite.Receive(e, beats, "a beat"); rows != locks {
					e.Errorf("a beat renewed %d of %d locks", rows, locks)
				}
			}
			// The first may come at once, and late: then the second comes at its time.
			if took := time.Since(start); took < (ticks-1)*interval {
				e.Errorf("%d beats took %v", ticks+1, took)
			}
		}},
		{"P8 a lock on many refs also takes one beat", suite.Long(func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{Heartbeat: 100 * time.Millisecond, StaleAfter: time.Hour})
			l := e.Hold(db, suite.ManyNames(e.Scale(1000))...)
			beats := make(chan int, 1000)
			faulty.Inject(func(c suite.Call) error {
				if c.Method == "Beat" {
					beats <- len(c.Arg.([]driver.LockID))
				}
				return c.Do()
			})
			for range 3 {
				if n := suite.Receive(e, beats, "a beat"); n != len(l.Refs()) {
					e.Errorf("a beat renewed %d rows of %d", n, len(l.Refs()))
				}
			}
			e.WantHeld(l)
		})},
		{"an acquisition with its values, an update and a release take one request each", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			l := e.Hold(db, refA, refB, refC)
			e.Must(l.Update(e.Context(), []driver.Update{suite.Move(refA, v1, v2), suite.Move(refB, "", v1)}))
			e.Must(l.Release(e.Context()))
			if n := faulty.Count("") - faulty.Count("Beat"); n != 3 {
				e.Errorf("it took %d requests", n)
			}
			l = e.Hold(db, refA)
			e.Must(l.UpdateAndRelease(e.Context(), []driver.Update{suite.Move(refA, v2, v3)}))
			if n := faulty.Count("") - faulty.Count("Beat"); n != 5 {
				e.Errorf("it took %d requests", n-3)
			}
		}},
		{"P8 a preparation of any number of refs takes one request, a finish one, their states one", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			names := suite.ManyNames(e.Scale(1000))
			updates := suite.Creations(names)
			for n, ask := range []func() error{
				func() error { return suite.ErrorOf(db.Intents().States(e.Context(), e.Project, names)) },
				func() error { return suite.ErrorOf(db.Intents().Prepare(e.Context(), e.Project, updates, agent)) },
				func() error { return db.Intents().Finish(e.Context(), preparationFrom(e.Pending()), names, nil) },
				func() error { prepareWith(e, db, suite.Move(names[0], v1, v2)); return nil },
				func() error { return db.Intents().Finish(e.Context(), preparationFrom(e.Pending()), nil, names[:1]) },
			} {
				e.Must(ask())
				if asked := faulty.Count(""); asked != n+1 {
					e.Fatalf("step %d: %d requests so far", n, asked)
				}
			}
			e.WantNone()
		}},
		{"P9 neither logs nor events carry a name, a value, an owner or a token", suite.Long(logsNameNothing)},
	}
}

// logsNameNothing does everything that is logged or observed, and looks for names in the output.
func logsNameNothing(e *env) {
	const (
		secretRef   = "refs/heads/secret-of-the-ref"
		otherRef    = "refs/heads/secret-of-the-other"
		secretValue = driver.Value("secret of the value")
	)
	e = &env{T: e.T, DB: e.DB, A: process{Driver: e.A.Driver, Owner: "secret-of-the-site/1"}, B: e.B, Project: "secret-of-the-" + e.Project}
	said := &logBuffer{}
	o := refdb.Options{
		Site: "secret-of-mine", Heartbeat: 20 * time.Millisecond, StaleAfter: time.Hour,
		Logger:  slog.New(slog.NewJSONHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Observe: func(event driver.Event) { fmt.Fprintf(said, "%+v\n", event) },
	}
	ctx := e.Context()
	db, faulty := e.OpenFaulty(o)
	secrets := []string{"secret", db.Owner(), db.Owner()[strings.LastIndexAny(db.Owner(), ":/")+1:]}
	tokens := func(all ...driver.Token) {
		for _, t := range all {
			secrets = append(secrets, fmt.Sprint(int64(t)), t.Time().Format("2006-01-02T15:04:05.000000"), t.Time().Format("2006-01-02 15:04:05.000000"))
		}
	}

	// A lock is reclaimed, refused, waited for; an update mismatches.
	old := e.Acquire(e.A, secretRef)
	e.Age(old, stale)
	l := e.Hold(db, secretRef, otherRef)
	tokens(old.Token, l.Token())
	_, err := db.TryLock(ctx, e.Project, secretRef)
	e.Refusal(err)
	limited, stop := context.WithCancel(ctx)
	w := waitFirst(e, limited, db, faulty, secretRef)
	stop()
	e.Refusal(w.gaveUp())
	e.Refusal(db.Update(ctx, e.Project, []driver.Update{suite.Move(secretRef, "", secretValue)}))
	e.Must(l.Update(ctx, []driver.Update{suite.Move(secretRef, "", secretValue)}))
	if err := l.Update(ctx, []driver.Update{suite.Move(secretRef, "", secretValue)}); !errors.Is(err, driver.ErrMismatch) {
		e.Fatal(err)
	}
	// Beats fail, then have an unknown outcome, then find the lock lost.
	for _, failure := range []error{suite.ErrDown, suite.ErrLost, fmt.Errorf("the server said: %q is %q", secretRef, secretValue)} {
		failed := make(chan struct{})
		faulty.Inject(suite.OnFirst("Beat", func(suite.Call) error {
			defer close(failed)
			return failure
		}))
		suite.Receive(e, failed, "a beat")
		wantBeats(e, secretRef)
	}
	tokens(e.Seize(l, secretRef).Token)
	e.WantEnd(l, driver.ErrLockLost)
	e.Loss(l.Release(ctx))
	e.Loss(l.Update(ctx, []driver.Update{suite.Move(secretRef, "", secretValue)}))
	// A fenced write finds the lock lost; replies are lost; the database can't be reached.
	l = e.Hold(db, otherRef)
	tokens(l.Token())
	e.Release(e.B, suite.LockOf(l))
	e.Loss(l.Update(ctx, []driver.Update{suite.Move(otherRef, "", secretValue)}))
	for _, method := range []string{"Acquire", "Update", "Release"} {
		for _, fault := range []func(string) func(suite.Call) error{suite.LoseReply, suite.LoseRequest} {
			faulty.Inject(fault(method))
			if l, err := db.TryLock(ctx, e.Project, otherRef); err == nil {
				tokens(l.Token())
				_ = l.Update(ctx, []driver.Update{suite.Move(otherRef, "", secretValue)})
				_ = l.Release(ctx)
			}
		}
	}
	for _, failure := range []error{suite.ErrDown, suite.ErrLost, context.DeadlineExceeded} {
		faulty.Inject(func(suite.Call) error { return failure })
		_, _ = db.TryLock(ctx, e.Project, otherRef)
		_, _ = db.Get(ctx, e.Project, otherRef)
		_ = db.Update(ctx, e.Project, []driver.Update{suite.Move(otherRef, "", secretValue)})
		_ = suite.FirstError(db.Refs(ctx, e.Project, "refs/heads/secret"))
	}
	faulty.Inject(nil)
	// Intents are prepared, refused, finished, lost, revoked, resolved and forgotten.
	const secretAgent, secretReason = "secret of the agent", "secret of the reason"
	prepare := func() (intents.Preparation, error) {
		return db.Intents().Prepare(ctx, e.Project, []driver.Update{suite.Move(refA, driver.Unknown, secretValue)}, secretAgent, intents.AskedBy("secret of who asks"))
	}
	for _, fault := range []func(string) func(suite.Call) error{suite.LoseReply, suite.LoseRequest} {
		for _, method := range []string{"Prepare", "Finish"} {
			faulty.Inject(fault(method))
			p, err := prepare()
			e.Must(err)
			tokens(p.Token)
			if _, err := prepare(); !errors.Is(err, driver.ErrLocked) {
				e.Fatal(err)
			}
			_, err = db.Operator().Purge(ctx, listLocks(e, db, driver.LockFilter{Project: e.Project, Ref: refA}), operator.PurgeFresh())
			e.Refusal(err)
			_ = db.Intents().Finish(ctx, p, nil, []string{refA})
			e.Loss(db.Intents().Finish(ctx, p, []string{refA}, nil))
			_ = db.Update(ctx, e.Project, []driver.Update{suite.Move(refA, secretValue, driver.Deleted)})
		}
	}
	faulty.Inject(func(c suite.Call) error {
		if c.Method == "Prepare" {
			return errors.Join(suite.ErrLost, c.Do())
		}
		return c.Do()
	})
	p, err := prepare()
	e.WantClass(err, driver.ErrOutcomeUnknown, driver.OutcomeUnknown)
	faulty.Inject(nil)
	e.Must(db.Intents().Revoke(ctx, p))
	p, err = prepare()
	e.Must(err)
	tokens(p.Token)
	resolved, err := db.Intents().Resolve(ctx, e.Pending(), driver.TakeNew, "secret of the operator", secretReason)
	e.Must(err)
	e.Must(db.Intents().Forget(ctx, resolved))
	e.Must(suite.ErrorOf(db.Intents().States(ctx, e.Project, []string{secretRef, refA})))
	// Locks are purged, the project is removed.
	_, err = db.Operator().Purge(ctx, listLocks(e, db, driver.LockFilter{Project: e.Project}), operator.PurgeFresh())
	e.Must(err)
	_, err = db.Projects().Remove(ctx, e.Project)
	e.Must(err)
	l = e.Hold(db, secretRef)
	tokens(l.Token())
	e.Must(db.Close())
	e.WantEnd(l, driver.ErrClosed)

	out := said.String()
	if !strings.Contains(out, `"msg"`) || !strings.Contains(out, "Op:") {
		e.Errorf("nothing was said:\n%s", out)
	}
	for _, secret := range secrets {
		for line := range strings.Lines(out) {
			if strings.Contains(line, secret) {
				e.Errorf("%q is in %s", secret, line)
			}
		}
	}
}

// A logBuffer keeps what is written to it. It may be used concurrently.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *logBuffer) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *logBuffer) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}
