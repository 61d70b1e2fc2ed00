package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// Marks that are ahead of the clock are what a clock that stepped back leaves.
func TestTokensGrowWhateverTheClockDoes(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	many := names(300) // of more than one shard, and more than 256 keys
	last := make(map[string]refdb.Token)
	take := func(refs ...string) {
		t.Helper()
		a := acquire(t, d, refs...)
		for _, ref := range refs {
			if a.Token <= last[ref] {
				t.Fatalf("token %s of %s follows %s", a.Token.Time(), ref, last[ref].Time())
			}
			last[ref] = a.Token
		}
		l, ok := db.RowLock(t, project, refs[0])
		if now := db.Now(t); !ok || l.Token != a.Token || l.Heartbeat.After(now) || now.Sub(l.Heartbeat) > time.Minute {
			t.Fatalf("now %s: %+v", now, l)
		}
		if gone, err := d.Release(t.Context(), held(a, refs...)); err != nil || !gone[0] {
			t.Fatal(gone, err)
		}
	}
	takeAll := func() {
		t.Helper()
		for range 2 {
			take(many[0])
			take(many[:2]...)
			take(many...)
			take(many[1])
		}
	}

	takeAll()
	ahead := db.Now(t).Add(24 * time.Hour)
	db.Exec(t, `UPDATE token_marks SET mark = $1`, ahead)
	takeAll()
	for _, ref := range many {
		if last[ref] <= refdb.TokenOf(ahead) {
			t.Errorf("token %s of %s is before the marks", last[ref].Time(), ref)
		}
	}
	// One shard alone is ahead, and takes those along that are locked with it.
	db.Exec(t, `UPDATE token_marks SET mark = $1 WHERE shard % 2 = 0`, ahead.Add(24*time.Hour))
	takeAll()
	for _, ref := range many {
		take(ref)
	}
}

// Without its mark nothing would keep a ref's tokens apart.
func TestNoTokenIsGivenOutWithoutAMark(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	db.Exec(t, `DELETE FROM token_marks`)
	for _, refs := range [][]string{{mainRef}, {mainRef, otherRef}} {
		if a, err := d.Acquire(t.Context(), request(refs...)); !errors.Is(err, refdb.ErrSchema) {
			t.Errorf("got %+v, %v", a, err)
		}
		if _, ok := db.RowLock(t, project, mainRef); ok {
			t.Error("a lock was taken")
		}
	}
}
