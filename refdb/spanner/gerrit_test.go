package spanner_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// gerritTables are the tables as Gerrit's spanner-refdb plugin creates them.
var gerritTables = []string{
	`CREATE TABLE refs (
		project STRING(MAX) NOT NULL, ref STRING(MAX) NOT NULL, value STRING(MAX) NOT NULL,
		time TIMESTAMP OPTIONS (allow_commit_timestamp=true)
	) PRIMARY KEY (project, ref)`,
	`CREATE INDEX project_time ON refs (project, time)`,
	`CREATE TABLE locks (
		project STRING(MAX) NOT NULL, ref STRING(MAX) NOT NULL,
		heartbeat TIMESTAMP OPTIONS (allow_commit_timestamp=true),
		token TIMESTAMP OPTIONS (allow_commit_timestamp=true),
		owner STRING(MAX) NOT NULL
	) PRIMARY KEY (project, ref)`,
}

func migrate(tb testing.TB, url string) {
	tb.Helper()
	m, err := spanner.Migrator(tb.Context(), url)
	must(tb, err)
	defer m.Close()
	must(tb, m.Up(tb.Context()))
}

func TestDatabaseThatGerritsPluginCreatedIsAdopted(t *testing.T) {
	t.Parallel()
	db := spannerKind(t).Empty(t)
	for _, statement := range gerritTables {
		db.Exec(t, statement)
	}
	db.InsertRef(t, project, branch, v1)
	db.InsertLock(t, driver.LockInfo{Project: project, Ref: branch, Owner: "gerrit-1"})
	db.InsertLock(t, driver.LockInfo{Project: project, Ref: "HEAD", Owner: "gerrit-2", Age: time.Hour})
	migrate(t, db.URL())
	d := patient(t, db)

	db.Exec(t, `UPDATE locks SET heartbeat = PENDING_COMMIT_TIMESTAMP() WHERE owner = 'gerrit-1'`) // however long the migration took
	var locked *driver.LockedError
	if err := update(t, d, "u", move(branch, v1, v2)); !errors.As(err, &locked) {
		t.Fatalf("an update under the plugin's lock: %v", err)
	}
	if h := locked.Holders[0]; h.Owner != "gerrit-1" || h.StaleAfter != driver.DefaultStaleAfter || h.Stale() {
		t.Errorf("holder %+v", h)
	}
	a := acquire(t, d, "n", "HEAD")
	if len(a.Reclaimed) != 1 || a.Reclaimed[0].Owner != "gerrit-2" {
		t.Errorf("reclaimed %+v", a.Reclaimed)
	}
	if purged, err := d.Purge(t.Context(), []driver.StandingLock{{LockID: locked.Holders[0].ID()}}); err != nil || !purged[0] {
		t.Fatalf("purge: %v, %v", purged, err)
	}
	must(t, update(t, d, "u", move(branch, v1, v2)))

	// The plugin's own inserts still work.
	db.InsertRef(t, project, "refs/heads/other", v1)
	db.InsertLock(t, driver.LockInfo{Project: project, Ref: "refs/heads/other", Owner: "gerrit-1"})
}

func TestNullColumnsAreReadAsTheOldestValues(t *testing.T) {
	t.Parallel()
	db := dbtest.Spanner(t)
	d := db.Open(t)
	db.Exec(t, "INSERT INTO locks (project, ref, owner) VALUES ('"+project+"', '"+branch+"', 'somebody')")
	db.Exec(t, "INSERT INTO refs (project, ref, value) VALUES ('"+project+"', '"+branch+"', '"+string(v1)+"')")
	l := locks(t, d)
	if len(l) != 1 || l[0].Token != 0 || !l[0].Heartbeat.Equal(time.Unix(0, 0)) || !l[0].Stale() {
		t.Fatalf("locks: %+v", l)
	}
	if ref := get(t, d, branch); ref.Value != v1 || !ref.Time.IsZero() || ref.Op != "" {
		t.Errorf("ref: %+v", ref)
	}
	a := acquire(t, d, "n", branch)
	if len(a.Reclaimed) != 1 || a.Token == 0 {
		t.Errorf("acquired %+v", a)
	}
	if l := locks(t, d); len(l) != 1 || l[0].Token != a.Token {
		t.Errorf("locks: %+v", l)
	}
}

func TestTokensFinerThanAMicrosecondMatch(t *testing.T) {
	t.Parallel()
	db := dbtest.Spanner(t)
	d := patient(t, db)
	db.Exec(t, "INSERT INTO locks (project, ref, owner, token, heartbeat) VALUES ('"+project+"', '"+branch+"', 'somebody', "+
		"TIMESTAMP '2020-01-02 03:04:05.123456789Z', TIMESTAMP '2020-01-02 03:04:06.987654321Z')")
	l := locks(t, d)[0]
	rows := []driver.StandingLock{{LockID: l.ID(), Heartbeat: l.Heartbeat}}
	if results, err := d.Beat(t.Context(), []driver.LockID{l.ID()}); err != nil || results[0] != driver.BeatRenewed {
		t.Fatalf("beat: %v, %v", results, err)
	}
	if purged, err := d.Purge(t.Context(), rows); err != nil || purged[0] {
		t.Fatalf("purge by the heartbeat before: %v, %v", purged, err)
	}
	rows[0].Heartbeat = locks(t, d)[0].Heartbeat.Truncate(time.Microsecond)
	if purged, err := d.Purge(t.Context(), rows); err != nil || !purged[0] {
		t.Fatalf("purge: %v, %v", purged, err)
	}
}

// While the plugin reclaims a lock, its marker exists, named after the token as Java prints it.
func TestAReclaimBegunByGerritsPluginIsNotRepeated(t *testing.T) {
	t.Parallel()
	for token, printed := range map[string]string{
		"2020-01-02T03:04:05.123456Z":    "2020-01-02T03:04:05.123456000Z",
		"2020-01-02T03:04:05.1Z":         "2020-01-02T03:04:05.100000000Z",
		"2020-01-02T03:04:05.123456789Z": "2020-01-02T03:04:05.123456789Z",
		"2020-01-02T03:04:00Z":           "2020-01-02T03:04:00Z",
	} {
		t.Run(token, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Spanner(t)
			d := db.Open(t)
			db.Exec(t, "INSERT INTO locks (project, ref, owner, token, heartbeat) VALUES ('"+project+"', '"+branch+"', 'gerrit-1', "+
				"TIMESTAMP '"+token+"', TIMESTAMP '2020-01-02T03:04:06Z')")
			marker := driver.LockInfo{Project: "RECLAIM_" + project + "_" + printed, Ref: branch, Owner: "gerrit-2"}
			db.InsertLock(t, marker)
			before := locks(t, d)
			_, err := d.Acquire(t.Context(), request("n", "HEAD", branch))
			if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "purg") {
				t.Fatalf("acquire: %v", err)
			}
			after := locks(t, d)
			if len(after) != 2 || after[0].Token != before[0].Token || after[0].Owner != "gerrit-1" || after[1].Token != before[1].Token {
				t.Fatalf("the locks were %+v and are %+v", before, after)
			}
			purged, err := d.Purge(t.Context(), []driver.StandingLock{{LockID: after[1].ID()}})
			if err != nil || !purged[0] {
				t.Fatalf("remove the marker: %v, %v", purged, err)
			}
			a := acquire(t, d, "n", "HEAD", branch)
			if len(a.Reclaimed) != 1 {
				t.Errorf("reclaimed %+v", a.Reclaimed)
			}
		})
	}
}

// To the plugin, a reservation is a lock that it may reclaim.
func TestAReservationIsTakenWithAMarker(t *testing.T) {
	t.Parallel()
	for channel, kept := range map[string]string{"c": "somebody", "": "nobody"} {
		t.Run(kept, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Spanner(t)
			d := db.Open(t)
			a := acquire(t, d, "n", branch)
			w := wait(t, d, driver.Waiter{ID: "w", Channel: channel, Turn: 20 * time.Second})
			release(t, d, a.Token, branch)
			row, ok := db.RowLock(t, project, branch)
			if !ok || !row.Reserved() || row.Token != a.Token {
				t.Fatalf("the row is %+v", row)
			}
			printed := a.Token.Time().UTC().Format("2006-01-02T15:04:05.000000000Z")
			marker := driver.LockInfo{Project: "RECLAIM_" + project + "_" + printed, Ref: branch, Owner: "gerrit-2"}
			db.InsertLock(t, marker)
			r := request("n2", branch)
			r.Waiter = w
			if _, err := d.Acquire(t.Context(), r); !errors.Is(err, driver.ErrUnavailable) {
				t.Fatalf("acquire while the plugin reclaims: %v", err)
			}
		})
	}
}

func TestAReclaimsMarkerExistsUntilTheCommit(t *testing.T) {
	t.Parallel()
	db := dbtest.Spanner(t)
	w := &wire{}
	d := openWire(t, db, w)
	refs := names(3)
	for _, ref := range refs {
		db.InsertLock(t, driver.LockInfo{Project: project, Ref: ref, Owner: "gerrit", Age: time.Minute})
	}
	var commits int
	var seen []driver.LockInfo
	other := db.Open(t)
	w.set(func(w *wire) {
		w.around = func(name string, send func() error) error {
			if name == "Commit" {
				if commits++; commits == 2 { // the reclaim is committed, the markers are about to be deleted
					seen = locks(t, other)
				}
			}
			return send()
		}
	})
	a := acquire(t, d, "n", refs...)
	must(t, d.Close())
	if len(seen) != 6 {
		t.Fatalf("after the reclaim there were %+v", seen)
	}
	for i, l := range seen[:3] {
		m := seen[3+i]
		was := a.Reclaimed[i]
		if l.Token != a.Token || m.Ref != l.Ref || m.Token != a.Token ||
			m.Project != "RECLAIM_"+project+"_"+was.Token.Time().Format("2006-01-02T15:04:05.000000000Z") {
			t.Errorf("lock %+v, marker %+v, after %+v", l, m, was)
		}
	}
	if left := locks(t, other); len(left) != 3 {
		t.Errorf("%+v remain", left)
	}
}

func TestReclaimWhoseMarkersCannotBeDeletedSucceeds(t *testing.T) {
	t.Parallel()
	db := dbtest.Spanner(t)
	w := &wire{}
	d := openWire(t, db, w)
	db.InsertLock(t, driver.LockInfo{Project: project, Ref: branch, Owner: "gerrit", Age: time.Minute})
	var commits int
	stuck := make(chan struct{})
	w.set(func(w *wire) {
		w.around = func(name string, send func() error) error {
			if name == "Commit" {
				if commits++; commits == 2 {
					<-stuck
				}
			}
			return send()
		}
	})
	a := acquire(t, d, "n", branch) // does not wait for the deletion
	if l, ok := db.RowLock(t, project, branch); !ok || l.Token != a.Token {
		t.Errorf("the lock is %+v", l)
	}
	close(stuck)
	must(t, d.Close())
	if left := locks(t, db.Open(t)); len(left) != 1 {
		t.Errorf("%+v remain", left)
	}
}

func spannerKind(tb testing.TB) dbtest.Kind {
	tb.Helper()
	for _, k := range dbtest.All() {
		if k.Dialect == "spanner" {
			return k
		}
	}
	tb.Fatal("dbtest knows no Spanner")
	return dbtest.Kind{}
}
