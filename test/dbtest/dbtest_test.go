package dbtest_test

import (
	"os"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// environ is what this process was started with: dbtest adds to it.
var environ = os.Environ()

func TestMain(m *testing.M) { dbtest.Main(m) }

var _ refdbtest.Database = (*dbtest.Database)(nil)

func each(t *testing.T, f func(t *testing.T, k dbtest.Kind)) {
	t.Parallel()
	for _, k := range dbtest.All() {
		t.Run(string(k.Dialect), func(t *testing.T) {
			t.Parallel()
			f(t, k)
		})
	}
}

func TestADatabaseIsMigratedAndEmpty(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.New(t)
		m, err := schema.Open(t.Context(), d.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		version, dirty, err := m.Version(t.Context())
		if err != nil || dirty || version != migrations.Latest(k.Dialect) {
			t.Errorf("schema version %d, dirty %t, %v; want %d", version, dirty, err, migrations.Latest(k.Dialect))
		}
		if _, ok := d.RowLock(t, "p", "refs/heads/main"); ok {
			t.Error("there is a lock in a new database")
		}
	})
}

func TestTwoTestsDoNotSeeEachOther(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		one, other := k.New(t), k.New(t)
		one.InsertLock(t, refdb.LockInfo{Project: "p", Ref: "refs/heads/main", Owner: "gerrit"})
		if _, ok := other.RowLock(t, "p", "refs/heads/main"); ok {
			t.Error("the lock of one database is in the other")
		}
	})
}

func TestALockIsWhatWasInserted(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.New(t)
		before := d.Now(t)
		d.InsertLock(t, refdb.LockInfo{Project: "p", Ref: "refs/heads/o'brien", Owner: "gerrit", Age: time.Minute})
		d.InsertLock(t, refdb.LockInfo{Project: "p", Ref: "refs/heads/old", Owner: "gerrit", Token: 1_700_000_000_123_456})
		after := d.Now(t)

		l, ok := d.RowLock(t, "p", "refs/heads/o'brien")
		if !ok || l.Owner != "gerrit" || l.StaleAfter != refdb.DefaultStaleAfter {
			t.Fatalf("lock %+v, %t", l, ok)
		}
		if token := l.Token.Time(); token.Before(before.Truncate(time.Millisecond)) || token.After(after) {
			t.Errorf("token %s, want between %s and %s", token, before, after)
		}
		if l.Age < time.Minute || l.Age > time.Minute+after.Sub(before)+time.Minute {
			t.Errorf("age %s, want a minute and a little", l.Age)
		}
		d.Age(t, "p", "refs/heads/o'brien", time.Hour)
		aged, _ := d.RowLock(t, "p", "refs/heads/o'brien")
		if got := l.Heartbeat.Sub(aged.Heartbeat); got != time.Hour {
			t.Errorf("aged by %s, want an hour", got)
		}
		if aged.Token != l.Token {
			t.Errorf("ageing changed the token from %d to %d", l.Token, aged.Token)
		}
		if old, _ := d.RowLock(t, "p", "refs/heads/old"); old.Token != 1_700_000_000_123_456 {
			t.Errorf("token %d is not the one that was given", old.Token)
		}
	})
}
