package postgres_test

import (
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
