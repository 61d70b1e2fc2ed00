package memory

import (
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// The suite changes a database behind its drivers with these methods.

// edit changes the tables.
func (db *Database) edit(change func(now time.Time)) {
	db.mu.Lock()
	defer db.mu.Unlock()
	change(now())
}

func (db *Database) Age(tb testing.TB, project, ref string, d time.Duration) {
	tb.Helper()
	db.edit(func(time.Time) {
		l := db.locks[key{project, ref}]
		if l == nil {
			tb.Fatalf("no lock stands on %q %q", project, ref)
		}
		l.Heartbeat = l.Heartbeat.Add(-d)
	})
}

func (db *Database) InsertLock(_ testing.TB, l driver.LockInfo) {
	db.edit(func(now time.Time) {
		if l.Token == 0 {
			l.Token = driver.TokenOf(now)
		}
		l.Heartbeat, l.Age, l.StaleAfter = now.Add(-l.Age), 0, driver.DefaultStaleAfter
		db.locks[key{l.Project, l.Ref}] = &lock{LockInfo: l}
		db.mark = max(db.mark, l.Token)
	})
}

func (db *Database) TakeOver(_ testing.TB, project, ref, owner string) {
	db.edit(func(now time.Time) {
		l := db.locks[key{project, ref}]
		l.Heartbeat, l.Owner, l.Token = now, owner, max(driver.TokenOf(now), l.Token+1)
		db.mark = max(db.mark, l.Token)
	})
}

func (db *Database) InsertRef(_ testing.TB, project, ref string, v driver.Value) {
	db.edit(func(now time.Time) { db.refs[key{project, ref}] = driver.Ref{Name: ref, Value: v, Time: now} })
}

func (db *Database) RowLock(_ testing.TB, project, ref string) (row driver.LockInfo, ok bool) {
	db.edit(func(time.Time) {
		if l := db.locks[key{project, ref}]; l != nil {
			row, ok = l.LockInfo, true
		}
	})
	return row, ok
}

// Exec knows the statements of the suite. It stores the value that a driver reads for NULL.
func (db *Database) Exec(tb testing.TB, sql string, _ ...any) {
	tb.Helper()
	var texts []string // of the statement
	for i, part := range strings.Split(sql, "'") {
		if i%2 == 1 {
			texts = append(texts, part)
		}
	}
	does := func(start string) bool { return strings.HasPrefix(sql, start) }
	locks := func(project string, change func(k key, l *lock)) {
		for k, l := range db.locks {
			if k.Project == project {
				change(k, l)
			}
		}
	}
	db.edit(func(time.Time) {
		switch {
		case does("DELETE FROM locks WHERE project = "):
			locks(texts[0], func(k key, _ *lock) { delete(db.locks, k) })
		case does("UPDATE locks SET heartbeat = NULL, token = NULL WHERE project = "):
			locks(texts[0], func(_ key, l *lock) { l.Heartbeat, l.Token = time.UnixMicro(0).UTC(), 0 })
		case does("UPDATE locks SET stale_after = 0 WHERE project = "):
			locks(texts[0], func(_ key, l *lock) { l.StaleAfter = 0 })
		case does("UPDATE locks SET owner = "):
			db.locks[key{texts[1], texts[2]}].Owner = texts[0]
		case does("UPDATE refs SET time = (SELECT l.heartbeat FROM locks l WHERE"):
			for _, ref := range texts[3:] {
				if row, ok := db.refs[key{texts[2], ref}]; ok {
					row.Time = db.locks[key{texts[0], texts[1]}].Heartbeat
					db.refs[key{texts[2], ref}] = row
				}
			}
		default:
			tb.Fatalf("can't execute %s", sql)
		}
	})
}

// Waiting returns the nonce and the queue of a row of locks.
func (db *Database) Waiting(project, ref string) (nonce string, waiting []string) {
	db.edit(func(time.Time) {
		if l := db.locks[key{project, ref}]; l != nil {
			nonce, waiting = l.nonce, l.queue.Texts()
		}
	})
	return nonce, waiting
}
