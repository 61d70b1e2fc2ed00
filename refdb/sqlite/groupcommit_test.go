package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

// together makes calls write in one group, if they fit into one: they arrive, in this order, while
// another request writes. It returns their errors.
func together(t testing.TB, d *sqlite.Driver, calls ...func() error) []error {
	t.Helper()
	leave := occupy(t, d)
	wait := queue(t, d, calls...)
	leave()
	return wait()
}

// queue starts calls, in this order, that have to wait. The returned function waits for them and
// returns their errors.
func queue(t testing.TB, d *sqlite.Driver, calls ...func() error) (wait func() []error) {
	t.Helper()
	errs := make([]error, len(calls))
	var all sync.WaitGroup
	for i, call := range calls {
		all.Go(func() { errs[i] = call() })
		eventually(t, func() bool { return d.Waiting() > i })
	}
	return func() []error {
		all.Wait()
		return errs
	}
}

func eventually(t testing.TB, condition func() bool) {
	t.Helper()
	for start := time.Now(); !condition(); time.Sleep(100 * time.Microsecond) {
		if time.Since(start) > 5*time.Minute {
			t.Fatal("the condition never became true")
		}
	}
}

// record returns a function that returns the statements that d executed since its last call.
func record(d *sqlite.Driver, before func(query string) error) func() []string {
	var mu sync.Mutex
	var statements []string
	d.Hook(func(query string) error {
		mu.Lock()
		statements = append(statements, query)
		mu.Unlock()
		return before(query)
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		all := statements
		statements = nil
		return all
	}
}

func nothing(string) error { return nil }

func times(statements []string, statement string) (n int) {
	for _, s := range statements {
		if s == statement {
			n++
		}
	}
	return n
}

func TestWaitingRequestsAreExecutedInOrderAndShareACommit(t *testing.T) {
	d, _ := open(t)
	executed := record(d, nothing)
	const n = 50
	var calls []func() error
	for i := range n {
		from, to := driver.Value(fmt.Sprint(i)), driver.Value(fmt.Sprint(i+1))
		if i == 0 {
			from = ""
		}
		calls = append(calls, func() error { return put(t.Context(), d, refA, from, to) })
	}
	if err := errors.Join(together(t, d, calls...)...); err != nil {
		t.Error(err)
	}
	if got := value(t, d, refA); got != driver.Value(fmt.Sprint(n)) {
		t.Errorf("the ref holds %q", got)
	}
	statements := executed()
	if begun, committed := times(statements, "BEGIN IMMEDIATE"), times(statements, "COMMIT"); begun != 2 || committed != 2 {
		t.Errorf("%d transactions and %d commits, want two: the one that was waited for and the group's", begun, committed)
	}
}

func TestASingleRequestIsOneTransaction(t *testing.T) {
	d, _ := open(t)
	executed := record(d, nothing)
	for i := range 10 {
		update(t, d, fmt.Sprintf("refs/heads/%d", i), "", v1)
		if got := executed(); len(got) != 5 || got[0] != "BEGIN IMMEDIATE" || got[4] != "COMMIT" {
			t.Errorf("an update executes %q", got)
		}
	}
}

func TestUnderLoadThereAreFewerCommitsThanRequests(t *testing.T) {
	d, _ := open(t)
	const workers, each = 16, 50
	var atWork atomic.Int32
	atWork.Store(workers)
	puts := 0 // in the transaction
	executed := record(d, func(query string) error {
		switch {
		case query == "BEGIN IMMEDIATE":
			puts = 0
		case strings.Contains(query, "INTO refs"):
			puts++
		case query == "COMMIT": // takes until all other workers have another request, on any machine
			eventually(t, func() bool { return d.Waiting() >= int(atWork.Load())-puts })
		}
		return nil
	})
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			defer atWork.Add(-1)
			for i := range each {
				if err := put(t.Context(), d, fmt.Sprintf("refs/heads/%d/%d", w, i), "", v1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := times(executed(), "COMMIT"); got > workers*each/2 {
		t.Errorf("%d commits for %d requests", got, workers*each)
	}
}

func TestAGroupIsBoundedAndKeepsTheOrder(t *testing.T) {
	d, _ := open(t)
	executed := record(d, nothing)
	var calls []func() error
	for i, size := range []int{200, 56, 1, 5000, 1, 255} { // at most 256 rows, or one request
		x := driver.UpdateRequest{}
		for j := range size {
			x.Updates = append(x.Updates, driver.Update{Ref: fmt.Sprintf("refs/heads/%d/%05d", i, j), New: v1})
		}
		calls = append(calls, func() error { return change(t.Context(), d, x) })
	}
	if err := errors.Join(together(t, d, calls...)...); err != nil {
		t.Error(err)
	}
	var shape []string
	puts := 0
	for _, s := range executed() {
		switch {
		case strings.Contains(s, "INTO refs"):
			puts++
		case s == "COMMIT":
			shape = append(shape, fmt.Sprint(puts))
			puts = 0
		}
	}
	if got, want := strings.Join(shape, " "), "0 2 1 1 2"; got != want {
		t.Errorf("the transactions had %s requests, want %s", got, want)
	}
}

func TestAWaitingRequestWhoseContextEndsDoesNothingAndDelaysNoOther(t *testing.T) {
	d, _ := open(t)
	leave := occupy(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	wait := queue(t, d,
		func() error { return put(t.Context(), d, refA, "", v1) },
		func() error {
			err := put(ctx, d, refB, "", v1)
			ended <- err
			return err
		},
		func() error { return put(t.Context(), d, refA, v1, v2) },
	)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || driver.ClassOf(err) != driver.Retryable { // while another request writes
		t.Errorf("got %v", err)
	}
	leave()
	if errs := wait(); errs[0] != nil || errs[2] != nil {
		t.Errorf("the other requests got %v and %v", errs[0], errs[2])
	}
	if got := value(t, d, refB); got != driver.Unknown {
		t.Errorf("the ref holds %q", got)
	}
}

func TestARequestWhoseContextEndsAfterItsWorkInAGroupIsCommitted(t *testing.T) {
	d, _ := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	d.Hook(func(query string) error {
		if strings.Contains(query, "INSERT") {
			cancel()
		}
		return nil
	})
	errs := together(t, d,
		func() error { return put(ctx, d, refA, "", v1) },
		func() error { return put(t.Context(), d, refB, "", v1) },
	)
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if a, b := value(t, d, refA), value(t, d, refB); a != v1 || b != v1 {
		t.Errorf("the refs hold %q and %q", a, b)
	}
}

func TestTokensOfAGroupIncreaseInItsOrder(t *testing.T) {
	d, _ := open(t)
	const n = 20
	acquired := make([]driver.Acquired, n)
	var calls []func() error
	for i := range n {
		calls = append(calls, func() (err error) {
			acquired[i], err = d.Acquire(t.Context(), request(owner, fmt.Sprintf("refs/heads/%d", i)))
			return err
		})
	}
	d.SetClock(func() time.Time { return time.UnixMicro(1_700_000_000_000_000) }) // a clock that stands still
	if err := errors.Join(together(t, d, calls...)...); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(acquired, func(a, b driver.Acquired) int {
		if a.Token < b.Token {
			return -1
		}
		return 1
	}) {
		t.Errorf("the tokens are %v", acquired)
	}
	if next := acquire(t, d, refA); next.Token <= acquired[n-1].Token {
		t.Errorf("the next token is %d, after %d", next.Token, acquired[n-1].Token)
	}
}

func TestCloseEndsWaitingRequestsAsAGroup(t *testing.T) {
	_, url := open(t)
	d := openAgain(t, url)
	leave := occupy(t, d)
	wait := queue(t, d,
		func() error { return put(context.WithoutCancel(t.Context()), d, refA, "", v1) },
		func() error { return put(context.WithoutCancel(t.Context()), d, refB, "", v1) },
	)
	closed := make(chan error)
	go func() { closed <- d.Close() }()
	for _, err := range wait() {
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("got %v", err)
		}
	}
	leave()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
