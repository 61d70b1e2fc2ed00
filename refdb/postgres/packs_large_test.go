package postgres_test

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// A large pack is deleted in pieces. A pack whose deletion is interrupted can't be read, listed or
// used, and is later deleted as abandoned.
func TestAnInterruptedDropOfALargePack(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	c := session(t, db.URL())
	storeLarge(t, d, "p")
	if err := errorOf(d.Prepare(t.Context(), using(mainRef, "p"))); err != nil {
		t.Fatal(err)
	}
	exec(t, c, `CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'stop'; END $$`)
	exec(t, c, `CREATE TRIGGER stop BEFORE DELETE ON pack_parts FOR EACH ROW WHEN (OLD.number = 100) EXECUTE FUNCTION stop()`)
	if n, err := d.RemovePacks(t.Context(), project, 10); n != 0 || err == nil {
		t.Errorf("%d packs were deleted, %v", n, err)
	}
	if n := query[int64](t, c, `SELECT count(*) FROM pack_parts`)[0]; n != 130-64 {
		t.Errorf("%d parts are left", n)
	}
	if packs, _ := usedPacks(t, d); len(packs) > 0 {
		t.Errorf("listed are %+v", packs)
	}
	for what, err := range map[string]error{
		"reading it": errorOf(d.PackPart(t.Context(), "p", 129)),
		"using it":   errorOf(d.Prepare(t.Context(), using(otherRef, "p"))),
		"ending it":  d.StorePart(t.Context(), partOf("p", 130, 131)),
	} {
		if !errors.Is(err, driver.ErrNoPack) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if u, err := d.PackUsage(t.Context(), project); err != nil || u != (driver.PackUsage{Unused: 1, UnusedSize: 130<<20 - 64}) {
		t.Errorf("%+v, %v", u, err)
	}
	exec(t, c, `DROP TRIGGER stop ON pack_parts`)
	if n, err := d.DropAbandonedPacks(t.Context(), 0, 10); n != 1 || err != nil {
		t.Errorf("%d abandoned packs were deleted, %v", n, err)
	}
	if n := query[int64](t, c, `SELECT (SELECT count(*) FROM packs) + (SELECT count(*) FROM pack_parts)`)[0]; n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// storeLarge stores a pack of 130 small parts that claims a size of 130 MiB.
func storeLarge(tb testing.TB, d *postgres.Driver, id string) {
	tb.Helper()
	for number := range 130 {
		p := partOf(id, number, 130)
		p.Pack.Size = 130 << 20
		if err := d.StorePart(tb.Context(), p); err != nil {
			tb.Fatal(err)
		}
	}
}

// A role that was created before the privilege to delete parts existed deletes a large pack at
// once.
func TestARoleThatMayNotDeletePartsDropsLargePacks(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	storeLarge(t, open(t, db.URL()), "p")
	c := session(t, db.URL())
	role := "site_" + strings.ToLower(rand.Text())
	exec(t, c, `CREATE ROLE `+role)
	t.Cleanup(func() {
		db.Exec(t, `DROP OWNED BY `+role)
		db.Exec(t, `DROP ROLE `+role)
	})
	exec(t, c, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+role)
	exec(t, c, `REVOKE DELETE ON pack_parts FROM `+role)
	separator := "?"
	if strings.Contains(db.URL(), "?") {
		separator = "&"
	}
	d := open(t, db.URL()+separator+"options=-crole%3D"+role)
	if n, err := d.RemovePacks(t.Context(), project, 10); n != 1 || err != nil {
		t.Errorf("%d packs were deleted, %v", n, err)
	}
	if n := query[int64](t, c, `SELECT (SELECT count(*) FROM packs) + (SELECT count(*) FROM pack_parts)`)[0]; n != 0 {
		t.Errorf("%d rows are left", n)
	}
}
