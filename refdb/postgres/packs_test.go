package postgres_test

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// storePack stores a pack with the given number of parts.
func storePack(tb testing.TB, d *postgres.Driver, id string, parts int) {
	tb.Helper()
	for number := range parts {
		if err := d.StorePart(tb.Context(), partOf(id, number, parts)); err != nil {
			tb.Fatal(err)
		}
	}
}

// partOf returns a part of a pack with the given number of parts, of one byte each.
func partOf(id string, number, parts int) driver.PackPart {
	return driver.PackPart{
		Pack:   driver.Pack{ID: id, Project: project, Owner: owner, Tips: []string{string(v1)}, Size: int64(parts), Sum: "sum"},
		Number: number, Data: []byte{byte(number)}, Last: number == parts-1,
	}
}

// using returns an intention that uses packs.
func using(ref string, packs ...string) driver.PrepareRequest {
	r := intention("", v1, ref)
	r.Packs = packs
	return r
}

// carrying returns an intention that carries packs of one part.
func carrying(ref string, packs ...string) driver.PrepareRequest {
	r := using(ref, packs...)
	for _, id := range packs {
		r.Parts = append(r.Parts, partOf(id, 0, 1))
	}
	return r
}

func errorOf[T any](_ T, err error) error { return err }

// usedPacks returns the used packs of the project, and the position up to which packs are complete.
func usedPacks(tb testing.TB, d *postgres.Driver) (packs []driver.Pack, upto driver.Position) {
	tb.Helper()
	page, err := d.Packs(tb.Context(), driver.PackQuery{Project: project, Limit: 100})
	if err != nil {
		tb.Fatal(err)
	}
	return page.Packs, page.Upto
}

// A request that waits for the row of a pack decides on the row's version after the wait: its own
// snapshot is older.
func TestAWaiterForAPackUsesItsOutcome(t *testing.T) {
	t.Parallel()
	const deletes, uses, completes = `DELETE FROM packs WHERE id = 'p'`, `UPDATE packs SET position = 7 WHERE id = 'p'`, `UPDATE packs SET size = size WHERE id = 'p'`
	type test struct {
		other  string // the statement of another transaction
		end    string // and how that transaction ends
		do     func(*postgres.Driver) error
		want   error
		stays  bool // the pack remains
		listed bool
	}
	prepare := func(d *postgres.Driver) error {
		return errorOf(d.Prepare(t.Context(), using(mainRef, "p")))
	}
	drop := func(d *postgres.Driver) error { return d.DropPack(t.Context(), "p") }
	abandon := func(d *postgres.Driver) error { return errorOf(d.DropAbandonedPacks(t.Context(), 0, 10)) }
	remove := func(d *postgres.Driver) error { return errorOf(d.RemovePacks(t.Context(), project, 10)) }
	again := func(d *postgres.Driver) error { return d.StorePart(t.Context(), partOf("p", 1, 2)) }
	for name, row := range map[string]test{
		"a preparation with a pack that was deleted":     {deletes, `COMMIT`, prepare, driver.ErrNoPack, false, false},
		"a preparation with a pack that was not":         {deletes, `ROLLBACK`, prepare, nil, true, true},
		"a preparation with a pack that was used":        {uses, `COMMIT`, prepare, nil, true, true},
		"a drop of a pack that was used":                 {uses, `COMMIT`, drop, nil, true, true},
		"a drop of a pack that was not":                  {uses, `ROLLBACK`, drop, nil, false, false},
		"a drop of a pack that was changed":              {completes, `COMMIT`, drop, nil, false, false},
		"a drop of abandoned packs, one of them used":    {uses, `COMMIT`, abandon, nil, true, true},
		"a drop of abandoned packs, none used":           {uses, `ROLLBACK`, abandon, nil, false, false},
		"a drop of abandoned packs, one of them changed": {completes, `COMMIT`, abandon, nil, false, false},
		"a removal of a pack that was used":              {uses, `COMMIT`, remove, nil, false, false},
		"a part that is stored again, of a used pack":    {uses, `COMMIT`, again, nil, true, true},
		"a part that is stored, of a deleted pack":       {deletes, `COMMIT`, again, driver.ErrNoPack, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			d := open(t, db.URL())
			storePack(t, d, "p", 2)
			b := &blockade{t, session(t, db.URL()), session(t, db.URL())}
			exec(t, b.conn, `BEGIN`)
			exec(t, b.conn, row.other)
			done := make(chan error)
			go func() { done <- row.do(d) }()
			b.wait()
			exec(t, b.conn, row.end)
			if err := <-done; !errors.Is(err, row.want) || row.want == nil && err != nil {
				t.Errorf("got %v, want %v", err, row.want)
			}
			_, err := d.PackPart(t.Context(), "p", 1)
			if stays := err == nil; stays != row.stays {
				t.Errorf("the pack remains: %t, want %t", stays, row.stays)
			}
			if n := query[int64](t, b.look, `SELECT count(*) FROM pack_parts`)[0]; row.stays != (n == 2) || !row.stays && n != 0 {
				t.Errorf("%d parts are there", n)
			}
			if packs, _ := usedPacks(t, d); len(packs) > 0 != row.listed {
				t.Errorf("used are %+v", packs)
			}
			if n := query[int64](t, b.look, `SELECT (SELECT count(*) FROM locks) + (SELECT count(*) FROM intents)`)[0]; row.want != nil && n != 0 {
				t.Errorf("%d locks and intents are left", n)
			}
		})
	}
}

// An open transaction holds back the position up to which packs are complete, but not their
// listing.
func TestAnOpenTransactionDoesNotDelayPacks(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	storePack(t, d, "p", 1)
	c := session(t, db.URL())
	exec(t, c, `BEGIN`)
	at := query[int64](t, c, `SELECT pg_current_xact_id()::text::bigint`)[0]
	if err := errorOf(d.Prepare(t.Context(), using(mainRef, "p"))); err != nil {
		t.Fatal(err)
	}
	packs, upto := usedPacks(t, d)
	if len(packs) != 1 || int64(packs[0].Position) <= at || int64(upto) >= at {
		t.Errorf("the open transaction is %d, packs are complete up to %d: %+v", at, upto, packs)
	}
	exec(t, c, `COMMIT`)
	if err := try(t.Context(), d, update(otherRef)); err != nil { // positions are complete up to the newest change
		t.Fatal(err)
	}
	eventually(t, "the pack's position is complete", func() bool {
		packs, upto := usedPacks(t, d)
		return upto >= packs[0].Position
	})
}

// A pack's position is after the changes that it builds on, even if its transaction began before
// them.
func TestAnInlinePackIsOrderedAfterItsBases(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d, other := open(t, db.URL()), open(t, db.URL())
	c := session(t, db.URL())
	exec(t, c, `BEGIN`)
	exec(t, c, `INSERT INTO packs (id, project, owner, bases, tips, base, parts, size, sum, time) VALUES ('q', '', '', '', '', false, 0, 0, '', now())`)
	r := carrying(mainRef, "p", "q")
	r.RequiredValues = []driver.RefValue{{Ref: otherRef, Value: v1}}
	done := make(chan error, 1)
	go func() { done <- errorOf(d.Prepare(t.Context(), r)) }()
	eventually(t, "the preparation waits", func() bool {
		var waits bool
		if err := c.QueryRow(t.Context(), `SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
	u := driver.UpdateRequest{Project: project, Updates: []driver.Update{{Ref: otherRef, New: v1}}, Origin: driver.Origin{ID: "op", Owner: owner}}
	if err := other.Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	exec(t, c, `ROLLBACK`)
	switch err := <-done; {
	case errors.Is(err, driver.ErrNoPack):
	case err != nil:
		t.Error(err)
	default:
		packs, _ := usedPacks(t, d)
		log, err := d.Log(t.Context(), driver.LogRequest{Project: project, Ref: otherRef, Limit: 1})
		if err != nil || packs[0].Position < log.Changes[0].Position {
			t.Errorf("the pack has position %d, what it builds on %d; %v", packs[0].Position, log.Changes[0].Position, err)
		}
	}
}

func TestRequestsAboutPacksTakeOneRoundTrip(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	w := newWire(t, db.URL())
	d := open(t, w.url)
	for _, count := range []bool{false, true} { // the first run prepares the statements
		for _, step := range []struct {
			name string
			do   func() error
		}{
			{"the first part", func() error { return d.StorePart(t.Context(), partOf("a", 0, 3)) }},
			{"another part", func() error { return d.StorePart(t.Context(), partOf("a", 1, 3)) }},
			{"the last part", func() error { return d.StorePart(t.Context(), partOf("a", 2, 3)) }},
			{"the only part", func() error { return d.StorePart(t.Context(), partOf("b", 0, 1)) }},
			{"one more", func() error { return d.StorePart(t.Context(), partOf("c", 0, 1)) }},
			{"a preparation", func() error {
				return errorOf(d.Prepare(t.Context(), using("refs/heads/"+rand.Text(), "a", "b")))
			}},
			{"a preparation that carries packs", func() error {
				return errorOf(d.Prepare(t.Context(), carrying("refs/heads/"+rand.Text(), rand.Text(), rand.Text())))
			}},
			{"a page", func() error {
				return errorOf(d.Packs(t.Context(), driver.PackQuery{Project: project, Limit: 1, Inline: 100}))
			}},
			{"reading a part", func() error { return errorOf(d.PackPart(t.Context(), "a", 1)) }},
			{"a count", func() error { return errorOf(d.PackUsage(t.Context(), "")) }},
			{"a drop", func() error { return d.DropPack(t.Context(), "c") }},
			{"a drop of abandoned packs", func() error { return errorOf(d.DropAbandonedPacks(t.Context(), time.Hour, 10)) }},
			{"a drop of superseded packs", func() error { return errorOf(d.DropSupersededPacks(t.Context(), project, 10)) }},
			{"a removal", func() error { return errorOf(d.RemovePacks(t.Context(), project, 10)) }},
		} {
			if n := w.count(func() {
				if err := step.do(); err != nil {
					t.Errorf("%s: %v", step.name, err)
				}
			}); count && n != 1 {
				t.Errorf("%s took %d round trips", step.name, n)
			}
		}
	}
}

func TestAPackRequestWhoseReplyWasLostIsRetried(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	w := newWire(t, db.URL())
	d := open(t, w.url)
	use, carry := using(mainRef, "a"), carrying("refs/heads/carried", "carried")
	for _, lost := range []fault{loseRequest, loseReply} {
		for _, step := range []struct {
			name string
			do   func() error
		}{
			{"the first part", func() error { return d.StorePart(t.Context(), partOf("a", 0, 2)) }},
			{"the last part", func() error { return d.StorePart(t.Context(), partOf("a", 1, 2)) }},
			{"a preparation", func() error { return errorOf(d.Prepare(t.Context(), use)) }},
			{"a preparation that carries a pack", func() error { return errorOf(d.Prepare(t.Context(), carry)) }},
			{"a drop", func() error { return d.DropPack(t.Context(), "a") }},
		} {
			connected(t, d)
			w.inject(lost)
			if err := step.do(); !errors.Is(err, driver.ErrOutcomeUnknown) {
				t.Errorf("%s: %v", step.name, err)
			}
			if err := step.do(); err != nil {
				t.Errorf("%s, again: %v", step.name, err)
			}
		}
		if packs, _ := usedPacks(t, d); len(packs) != 2 || packs[0].Parts != 2 || packs[0].Size != 2 || packs[1].Parts != 1 || packs[1].Size != 1 {
			t.Errorf("used are %+v", packs)
		}
		if err := errorOf(d.RemovePacks(t.Context(), project, 10)); err != nil {
			t.Fatal(err)
		}
		use, carry = using(otherRef, "a"), carrying("refs/heads/carried again", "carried")
	}
}

// Git has already compressed the data, so the server stores it uncompressed and reads it without
// decompression.
func TestPartsAreStoredUncompressed(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	p := partOf("a", 0, 1)
	p.Data = make([]byte, driver.MaxPackPart)
	if err := d.StorePart(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if n := query[int64](t, session(t, db.URL()), `SELECT pg_column_size(data) FROM pack_parts`)[0]; n != driver.MaxPackPart {
		t.Errorf("a part of %d zeros takes %d bytes", driver.MaxPackPart, n)
	}
}
