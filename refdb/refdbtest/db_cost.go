package refdbtest

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
)

func dbCostRows() []row {
	return []row{
		{"P8 holding many locks costs one beat per tick", func(e *env) {
			const interval = 250 * time.Millisecond
			locks := e.scale(1000)
			db, driver := e.openFaulty(refdb.Options{Heartbeat: interval, StaleAfter: time.Hour})
			errs := make([]error, 4)
			var taking sync.WaitGroup
			for i := range errs {
				taking.Go(func() {
					for n := i; n < locks && errs[i] == nil; n += len(errs) {
						_, errs[i] = db.TryLock(e.Context(), e.project, fmt.Sprintf("refs/heads/%d", n))
					}
				})
			}
			taking.Wait()
			e.must(errors.Join(errs...))

			type beat struct {
				at   time.Time
				rows int
			}
			beats := make(chan beat, 100)
			driver.inject(func(c call) error {
				if c.method == "Beat" {
					beats <- beat{time.Now(), len(c.arg.([]refdb.LockID))}
				}
				return c.do()
			})
			const ticks = 3
			start := receive(e, beats, "a beat")
			last := start
			for range ticks {
				last = receive(e, beats, "a beat")
				if last.rows != locks {
					e.Errorf("a beat renewed %d of %d locks", last.rows, locks)
				}
			}
			// After a late tick the next one may come sooner.
			if took := last.at.Sub(start.at); took < (ticks-1)*interval*3/4 {
				e.Errorf("%d beats took %v", ticks, took)
			}
		}},
		{"P8 a lock on many refs is one beat too", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{Heartbeat: 100 * time.Millisecond, StaleAfter: time.Hour})
			l := e.hold(db, manyNames(e.scale(1000))...)
			beats := make(chan int, 1000)
			driver.inject(func(c call) error {
				if c.method == "Beat" {
					beats <- len(c.arg.([]refdb.LockID))
				}
				return c.do()
			})
			for range 3 {
				if n := receive(e, beats, "a beat"); n != len(l.Refs()) {
					e.Errorf("a beat renewed %d rows of %d", n, len(l.Refs()))
				}
			}
			e.wantHeld(l)
		}},
		{"a lock and its values take one request, an update one, a release one", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			e.must(e.update(e.a, move(refA, "", v1)))
			l := e.hold(db, refA, refB, refC)
			e.must(l.Update(e.Context(), []refdb.Update{move(refA, v1, v2), move(refB, "", v1)}))
			e.must(l.Release(e.Context()))
			if n := driver.count("") - driver.count("Beat"); n != 3 {
				e.Errorf("it took %d requests", n)
			}
			l = e.hold(db, refA)
			e.must(l.UpdateAndRelease(e.Context(), []refdb.Update{move(refA, v2, v3)}))
			if n := driver.count("") - driver.count("Beat"); n != 5 {
				e.Errorf("it took %d requests", n-3)
			}
		}},
		{"P8 a preparation of any number of refs takes one request, a finish one, their states one", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			names := manyNames(e.scale(1000))
			updates := creations(names)
			for n, ask := range []func() error{
				func() error { return errorOf(db.States(e.Context(), e.project, names)) },
				func() error { return errorOf(db.Prepare(e.Context(), e.project, updates, agent)) },
				func() error { return db.Finish(e.Context(), preparationFrom(e.pending()), names, nil) },
				func() error { e.prepareWith(db, move(names[0], v1, v2)); return nil },
				func() error { return db.Finish(e.Context(), preparationFrom(e.pending()), nil, names[:1]) },
			} {
				e.must(ask())
				if asked := driver.count(""); asked != n+1 {
					e.Fatalf("step %d: %d requests so far", n, asked)
				}
			}
			e.wantNone()
		}},
		{"P9 neither logs nor events carry a name, a value, an owner or a token", logsNameNothing},
	}
}

func manyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("refs/heads/%05d", i)
	}
	return names
}

// logsNameNothing does everything that is logged or observed, and looks for names in the output.
func logsNameNothing(e *env) {
	const (
		secretRef   = "refs/heads/secret-of-the-ref"
		otherRef    = "refs/heads/secret-of-the-other"
		secretValue = refdb.Value("secret of the value")
	)
	e = &env{T: e.T, db: e.db, a: process{e.a.Driver, "secret-of-the-site/1"}, b: e.b, project: "secret-of-the-" + e.project}
	said := &logBuffer{}
	o := refdb.Options{
		Site: "secret-of-mine", Heartbeat: 20 * time.Millisecond, StaleAfter: time.Hour, MaxWait: waitLimit,
		Logger:  slog.New(slog.NewJSONHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Observe: func(event refdb.Event) { fmt.Fprintf(said, "%+v\n", event) },
	}
	ctx := e.Context()
	db, driver := e.openFaulty(o)
	secrets := []string{"secret", db.Owner(), db.Owner()[strings.LastIndexAny(db.Owner(), ":/")+1:]}
	tokens := func(all ...refdb.Token) {
		for _, t := range all {
			secrets = append(secrets, fmt.Sprint(int64(t)), t.Time().Format("2006-01-02T15:04:05.000000"), t.Time().Format("2006-01-02 15:04:05.000000"))
		}
	}

	// A lock is reclaimed, refused, waited for; an update mismatches.
	old := e.acquire(e.a, secretRef)
	e.age(old, stale)
	l := e.hold(db, secretRef, otherRef)
	tokens(old.Token, l.Token())
	_, err := db.TryLock(ctx, e.project, secretRef)
	e.refusal(err)
	_, err = db.Lock(ctx, e.project, secretRef)
	e.refusal(err)
	e.refusal(db.Update(ctx, e.project, []refdb.Update{move(secretRef, "", secretValue)}))
	e.must(l.Update(ctx, []refdb.Update{move(secretRef, "", secretValue)}))
	if err := l.Update(ctx, []refdb.Update{move(secretRef, "", secretValue)}); !errors.Is(err, refdb.ErrMismatch) {
		e.Fatal(err)
	}
	// Beats fail, then have an unknown outcome, then find the lock lost.
	for _, failure := range []error{errDown, errLost, fmt.Errorf("the server said: %q is %q", secretRef, secretValue)} {
		failed := make(chan struct{})
		driver.inject(onFirst("Beat", func(call) error {
			defer close(failed)
			return failure
		}))
		receive(e, failed, "a beat")
		e.wantBeats(secretRef)
	}
	tokens(e.seize(l, secretRef).Token)
	e.wantEnd(l, refdb.ErrLockLost)
	e.loss(l.Release(ctx))
	e.loss(l.Update(ctx, []refdb.Update{move(secretRef, "", secretValue)}))
	// A fenced write finds the lock lost; replies are lost; the database can't be reached.
	l = e.hold(db, otherRef)
	tokens(l.Token())
	e.release(e.b, lockOf(l))
	e.loss(l.Update(ctx, []refdb.Update{move(otherRef, "", secretValue)}))
	for _, method := range []string{"Acquire", "Update", "Release"} {
		for _, fault := range []func(string) func(call) error{loseReply, loseRequest} {
			driver.inject(fault(method))
			if l, err := db.TryLock(ctx, e.project, otherRef); err == nil {
				tokens(l.Token())
				_ = l.Update(ctx, []refdb.Update{move(otherRef, "", secretValue)})
				_ = l.Release(ctx)
			}
		}
	}
	for _, failure := range []error{errDown, errLost, context.DeadlineExceeded} {
		driver.inject(func(call) error { return failure })
		_, _ = db.TryLock(ctx, e.project, otherRef)
		_, _ = db.Get(ctx, e.project, otherRef)
		_ = db.Update(ctx, e.project, []refdb.Update{move(otherRef, "", secretValue)})
		_ = firstError(db.Refs(ctx, e.project, "refs/heads/secret"))
	}
	driver.inject(nil)
	// Intents are prepared, refused, finished, lost, revoked, resolved and forgotten.
	const secretAgent, secretReason = "secret of the agent", "secret of the reason"
	prepare := func() (refdb.Preparation, error) {
		return db.Prepare(ctx, e.project, []refdb.Update{move(refA, refdb.Unknown, secretValue)}, secretAgent, refdb.AskedBy("secret of who asks"))
	}
	for _, fault := range []func(string) func(call) error{loseReply, loseRequest} {
		for _, method := range []string{"Prepare", "Finish"} {
			driver.inject(fault(method))
			p, err := prepare()
			e.must(err)
			tokens(p.Token)
			if _, err := prepare(); !errors.Is(err, refdb.ErrLocked) {
				e.Fatal(err)
			}
			_, err = db.Purge(ctx, e.listLocks(db, refdb.LockFilter{Project: e.project, Ref: refA}), refdb.PurgeFresh())
			e.refusal(err)
			_ = db.Finish(ctx, p, nil, []string{refA})
			e.loss(db.Finish(ctx, p, []string{refA}, nil))
			_ = db.Update(ctx, e.project, []refdb.Update{move(refA, secretValue, refdb.Deleted)})
		}
	}
	driver.inject(func(c call) error {
		if c.method == "Prepare" {
			return errors.Join(errLost, c.do())
		}
		return c.do()
	})
	p, err := prepare()
	e.wantClass(err, refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
	driver.inject(nil)
	e.must(db.Revoke(ctx, p))
	p, err = prepare()
	e.must(err)
	tokens(p.Token)
	resolved, err := db.Resolve(ctx, e.pending(), refdb.TakeNew, "secret of the operator", secretReason)
	e.must(err)
	e.must(db.Forget(ctx, resolved))
	e.must(errorOf(db.States(ctx, e.project, []string{secretRef, refA})))
	// Locks are purged, the project is removed.
	_, err = db.Purge(ctx, e.listLocks(db, refdb.LockFilter{Project: e.project}), refdb.PurgeFresh())
	e.must(err)
	_, err = db.RemoveProject(ctx, e.project)
	e.must(err)
	l = e.hold(db, secretRef)
	tokens(l.Token())
	e.must(db.Close())
	e.wantEnd(l, refdb.ErrClosed)

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
