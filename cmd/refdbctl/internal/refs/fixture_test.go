package refs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

// fixture is a database in memory, and a run of refdbctl that prints JSON.
type fixture struct {
	*app
	memory        *memory.Database
	db            *refdb.DB // of the run
	other         *refdb.DB // of another site
	out, messages bytes.Buffer
}

// newFixture returns a fixture whose run uses the driver that wrap returns, unless wrap is nil.
func newFixture(tb testing.TB, wrap func(*fixture, refdb.Driver) refdb.Driver) *fixture {
	tb.Helper()
	f := &fixture{memory: memory.New()}
	f.app = &app{cli.New(cli.Streams{Out: &f.out, Err: &f.messages, Env: func(string) string { return "" }})}
	f.Format = output.JSON
	open := func(site string, d refdb.Driver) *refdb.DB {
		db, err := refdb.New(d, refdb.Options{Site: site})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { db.Close() })
		return db
	}
	f.other = open("there", f.memory.Open())
	driver := f.memory.Open()
	if wrap != nil {
		driver = wrap(f, driver)
	}
	f.db = open("here", driver)
	return f
}

// put sets a ref on behalf of the other site.
func (f *fixture) put(tb testing.TB, ref string, v refdb.Value) {
	tb.Helper()
	if _, err := f.other.Put(tb.Context(), "p", ref, v); err != nil {
		tb.Error(err)
	}
}

// lock locks a ref on behalf of the other site.
func (f *fixture) lock(tb testing.TB, ref string) *refdb.Lock {
	tb.Helper()
	l, err := f.other.TryLock(tb.Context(), "p", ref)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// holds returns the refs of the project, such as "b0000 a, b0001 b".
func (f *fixture) holds(tb testing.TB) string {
	tb.Helper()
	var all []string
	for ref, err := range f.other.Refs(tb.Context(), "p", "") {
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, strings.TrimPrefix(ref.Name, "refs/heads/")+" "+string(ref.Value[:1]))
	}
	return strings.Join(all, ", ")
}

// position returns the position of the newest change.
func (f *fixture) position(tb testing.TB) refdb.Position {
	tb.Helper()
	for c, err := range f.other.History(tb.Context(), "p", "") {
		if err != nil {
			tb.Fatal(err)
		}
		return c.Position
	}
	return 0
}

// resultRow is a row of JSON output.
type resultRow struct{ Result, Ref string }

// printed returns the rows that were printed, such as "locked b0001".
func (f *fixture) printed(tb testing.TB) (rows []string) {
	tb.Helper()
	var all []resultRow
	if err := json.Unmarshal(f.out.Bytes(), &all); err != nil {
		tb.Fatalf("%v in %q", err, f.out.String())
	}
	for _, r := range all {
		rows = append(rows, r.Result+" "+strings.TrimPrefix(r.Ref, "refs/heads/"))
	}
	return rows
}

// updating is a driver that does something before or after each update. Updates are counted from 1.
type updating struct {
	refdb.Driver
	before func(n int, r driver.UpdateRequest) error
	after  func(n int, r driver.UpdateRequest) error
	n      chan int // the number of the next update
}

func newUpdating(d refdb.Driver) *updating {
	u := &updating{Driver: d, n: make(chan int, 1)}
	u.n <- 1
	return u
}

func (u *updating) Update(ctx context.Context, r driver.UpdateRequest) (err error) {
	n := <-u.n
	u.n <- n + 1
	if u.before != nil {
		err = u.before(n, r)
	}
	if err == nil {
		err = u.Driver.Update(ctx, r)
	}
	if err == nil && u.after != nil {
		err = u.after(n, r)
	}
	return err
}

func id(digit string) refdb.Value { return refdb.Value(strings.Repeat(digit, 40)) }

func branch(i int) string { return fmt.Sprintf("refs/heads/b%04d", i) }
