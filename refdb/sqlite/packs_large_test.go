package sqlite_test

import (
	"errors"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// A large pack is deleted in pieces. A pack whose deletion is interrupted can't be read, listed or
// used, and is later deleted as abandoned.
func TestAnInterruptedDropOfALargePack(t *testing.T) {
	db := local.SQLite(t)
	d := db.Open(t).(*sqlite.Driver)
	ctx := t.Context()
	const parts = 130
	part := func(number int) driver.PackPart {
		p := packOf("p") // which claims to be large
		p.Number, p.Last, p.Pack.Size = number, number == parts-1, parts<<20
		return p
	}
	for number := range parts {
		if err := d.StorePart(ctx, part(number)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Prepare(ctx, usingPack("p")); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `CREATE TRIGGER stop BEFORE DELETE ON pack_parts WHEN OLD.number = 100 BEGIN SELECT RAISE(ABORT, 'stop'); END`)
	if n, err := d.RemovePacks(ctx, project, 10); n != 0 || err == nil {
		t.Errorf("%d packs were deleted, %v", n, err)
	}
	_, reading := d.PackPart(ctx, "p", parts-1)
	again := usingPack("p")
	again.Nonce, again.Updates[0].Ref = "again", "refs/heads/again"
	_, using := d.Prepare(ctx, again)
	for what, err := range map[string]error{"reading it": reading, "using it": using, "ending it": d.StorePart(ctx, driver.PackPart{
		Pack: part(0).Pack, Number: parts, Data: []byte("x"), Last: true,
	})} {
		if !errors.Is(err, driver.ErrNoPack) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if page, err := d.Packs(ctx, driver.PackQuery{Project: project, Limit: 10}); err != nil || len(page.Packs) > 0 {
		t.Errorf("listed are %+v, %v", page.Packs, err)
	}
	if u, err := d.PackUsage(ctx, project); err != nil || u != (driver.PackUsage{Unused: 1, UnusedSize: parts<<20 - 64}) {
		t.Errorf("%+v, %v", u, err)
	}
	db.Exec(t, `DROP TRIGGER stop`)
	if n, err := d.DropAbandonedPacks(ctx, 0, 10); n != 1 || err != nil {
		t.Errorf("%d abandoned packs were deleted, %v", n, err)
	}
	if u, err := d.PackUsage(ctx, ""); err != nil || u != (driver.PackUsage{}) {
		t.Errorf("%+v remain, %v", u, err)
	}
}
