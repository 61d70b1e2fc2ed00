package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

type migrator = *migrations.Migrator

// migrate changes the schema of a file.
func migrate(t testing.TB, path string, do func(migrator) error) {
	t.Helper()
	m, err := sqlite.Migrator(t.Context(), "sqlite:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := do(m); err != nil {
		t.Fatal(err)
	}
}

// query executes statements on a file, on one connection.
func query(t testing.TB, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// occupy keeps d in a write transaction until the returned function is called.
func occupy(t testing.TB, d *sqlite.Driver) (leave func()) {
	t.Helper()
	inside, out, done := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		done <- d.Write(context.WithoutCancel(t.Context()), func(func(string, ...any) error) error {
			close(inside)
			<-out
			return nil
		})
	}()
	<-inside
	return func() {
		close(out)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestAWriterWaitsForOthersUntilItsContextEnds(t *testing.T) {
	d, url := open(t)
	for name, other := range map[string]*sqlite.Driver{"another process": openAgain(t, url), "the same process": d} {
		t.Run(name, func(t *testing.T) {
			leave := occupy(t, other)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, err := d.Acquire(ctx, request(owner, refA))
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrOutcomeUnknown) {
				t.Errorf("got %v", err)
			}
			leave()
			if got := locks(t, d); len(got) != 0 {
				t.Errorf("locks exist: %v", got)
			}
		})
	}
}

func TestABlockedWriterGivesUp(t *testing.T) {
	d, url := open(t)
	leave := occupy(t, openAgain(t, url))
	defer leave()
	d.SetPatience(10 * time.Millisecond)
	_, err := d.Acquire(t.Context(), request(owner, refA))
	if !errors.Is(err, driver.ErrUnavailable) || !strings.HasSuffix(err.Error(), "other processes keep the file locked; look for one that was stopped") {
		t.Errorf("got %v", err)
	}
}

func TestReadersDoNotWaitForAWriter(t *testing.T) {
	d, _ := open(t)
	update(t, d, refA, "", v1)
	leave := occupy(t, d)
	defer leave()
	if got := value(t, d, refA); got != v1 {
		t.Errorf("got %q", got)
	}
	locks(t, d)
	if _, err := d.List(t.Context(), driver.RefQuery{Project: project, Limit: 1}); err != nil {
		t.Error(err)
	}
}

func TestAnEndedContextAfterACommitIsNotAnUnknownOutcome(t *testing.T) {
	d, _ := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	d.Hook(func(query string) error {
		if query == "COMMIT" {
			cancel()
		}
		return nil
	})
	if err := put(ctx, d, refA, "", v1); err != nil {
		t.Errorf("a commit that took place returns %v", err)
	}
	if got := value(t, d, refA); got != v1 {
		t.Errorf("the ref holds %q", got)
	}
}

func TestATransactionWhoseContextEndsBeforeTheCommitDidNothing(t *testing.T) {
	d, _ := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	d.Hook(func(query string) error {
		if strings.Contains(query, "INSERT") {
			cancel()
		}
		return nil
	})
	if err := put(ctx, d, refA, "", v1); !errors.Is(err, context.Canceled) || driver.ClassOf(err) != driver.Retryable {
		t.Errorf("got %v", err)
	}
	if got := value(t, d, refA); got != driver.Unknown {
		t.Errorf("the ref holds %q", got)
	}
}

func TestCloseWaitsForRunningCallsAndEndsWaitingOnes(t *testing.T) {
	_, url := open(t)
	d := openAgain(t, url)
	leave := occupy(t, d)
	waiting := make(chan error)
	go func() {
		_, err := d.Acquire(context.Background(), request(owner, refA))
		waiting <- err
	}()
	closed := make(chan error)
	go func() { closed <- d.Close() }()
	if err := <-waiting; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("waiting: %v", err)
	}
	select {
	case err := <-closed:
		t.Errorf("Close did not wait: %v", err)
	default:
	}
	leave() // fails the test unless it commits
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := d.Now(t.Context()); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("after: %v", err)
	}
}

func TestAClockThatStepsBackNeverYieldsASmallerToken(t *testing.T) {
	a, url := open(t)
	b := openAgain(t, url)
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	clock := func(behind *time.Duration) func() time.Time {
		return func() time.Time { return now.Add(-*behind) }
	}
	var behindA, behindB time.Duration
	a.SetClock(clock(&behindA))
	b.SetClock(clock(&behindB))

	var last driver.Token
	steps := []time.Duration{0, 0, time.Hour, 30 * time.Minute, 2 * time.Hour, 0, -time.Minute, 1000 * time.Hour, 0}
	for i, step := range steps {
		behindA, behindB = step, steps[len(steps)-1-i]
		for j, d := range []*sqlite.Driver{a, b, b, a} {
			ref := []string{refA, refB}[j%2]
			got := acquire(t, d, ref)
			if got.Token <= last {
				t.Fatalf("step %d: token %d after %d", i, got.Token, last)
			}
			last = got.Token
			l := locks(t, d)[0]
			if now, _ := d.Now(t.Context()); !l.Heartbeat.Equal(now) || l.Age != 0 {
				t.Errorf("step %d: heartbeat %v, age %v, at %v", i, l.Heartbeat, l.Age, now)
			}
			if err := release(t.Context(), d, owner, got.Token, ref); err != nil {
				t.Fatal(err)
			}
		}
	}

	// Nor does the token fall behind after all drivers were closed.
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	c := openAgain(t, url)
	behindA = 10_000 * time.Hour
	c.SetClock(clock(&behindA))
	if got := acquire(t, c, refA); got.Token <= last {
		t.Errorf("token %d after %d", got.Token, last)
	}
}

func TestATokenThatCantBeSurpassedIsAnError(t *testing.T) {
	d, _ := open(t)
	write(t, d, `INSERT INTO locks (project, ref, token, owner) VALUES (?, ?, 9223372036854775807, 'x')`, project, refA)
	if _, err := d.Acquire(t.Context(), request(owner, refA)); err == nil || driver.ClassOf(err) != driver.Permanent {
		t.Errorf("got %v", err)
	}
	write(t, d, `UPDATE token_mark SET mark = 9223372036854775807`)
	if _, err := d.Acquire(t.Context(), request(owner, refB)); err == nil || driver.ClassOf(err) != driver.Permanent {
		t.Errorf("above the largest mark: %v", err)
	}
	write(t, d, `DELETE FROM token_mark`)
	if _, err := d.Acquire(t.Context(), request(owner, refB)); err == nil || driver.ClassOf(err) != driver.Permanent {
		t.Errorf("without a mark: %v", err)
	}
	if got := locks(t, d); len(got) != 1 {
		t.Errorf("the locks are %v", got)
	}
}
