package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// together makes requests at about the same time and waits for them.
func together(requests ...func()) {
	var all sync.WaitGroup
	for _, r := range requests {
		all.Go(r)
	}
	all.Wait()
}

func TestRequestsThatShareABatchCostOneCommit(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	w := newWire(t, db.URL())
	d := open(t, w.url)
	d.BePatient()
	d.ShareAll()
	const n = 50
	tokens := make([]driver.Token, n)
	check := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	batches := func() (n int) {
		for _, size := range d.Stats().Batches.Sizes {
			n += int(size)
		}
		return n
	}
	// each makes n requests, which share a few batches; how many depends on how soon the requests
	// arrive. A batch whose statements are new to the connection costs one round trip more, to
	// describe them. That may happen in any of the rounds, as a batch of one request has other
	// statements.
	each := func(what string, do func(i int, ref string)) {
		t.Helper()
		requests := make([]func(), n)
		for i := range requests {
			requests[i] = func() { do(i, ref("x", i)) }
		}
		before, executing := batches(), w.postgres.Executing.Load()
		trips := w.count(func() { together(requests...) })
		sent, executed := batches()-before, int(w.postgres.Executing.Load()-executing)
		if executed != sent || trips > 2*sent {
			t.Errorf("%d %ss in %d batches took %d round trips, %d of which executed something",
				n, what, sent, trips, executed)
		}
	}
	for range 2 {
		each("acquisition", func(i int, ref string) { tokens[i] = acquire(t, d, ref).Token })
		each("refusal", func(_ int, ref string) {
			if _, err := d.Acquire(t.Context(), request(ref)); !errors.Is(err, driver.ErrLocked) {
				t.Error(err)
			}
		})
		each("release", func(i int, ref string) {
			if ok, err := released(d, ending(tokens[i], ref)); !ok {
				t.Errorf("%s was not released: %v", ref, err)
			}
		})
		each("adopting update", func(_ int, ref string) {
			r := update(ref)
			r.Adopt = true
			r.Updates[0].Old, r.Updates[0].New = v1, v1
			check(try(t.Context(), d, r))
		})
		each("plain update", func(_ int, ref string) {
			r := update(ref)
			r.Updates[0].Old, r.Updates[0].New = v1, v1
			check(try(t.Context(), d, r))
		})
		each("acquisition", func(i int, ref string) { tokens[i] = acquire(t, d, ref).Token })
		each("update and release", func(i int, ref string) {
			r := update(ref)
			r.Updates[0].Old, r.Fence = v1, releasing(tokens[i], ref)
			check(try(t.Context(), d, r))
		})
		var taken []string
		for i := 1; i < n; i += 3 {
			taken = append(taken, ref("x", i))
		}
		slices.Sort(taken)
		ours := acquire(t, d, taken...)
		each("request of any kind", func(i int, ref string) {
			switch i % 3 {
			case 0:
				tokens[i] = acquire(t, d, ref).Token
			case 1:
				if ok, err := released(d, ending(ours.Token, ref)); !ok {
					t.Errorf("%s was not released: %v", ref, err)
				}
			case 2:
				r := update(ref)
				r.Updates[0].Old, r.Updates[0].New = v1, v1
				check(try(t.Context(), d, r))
			}
		})
		for i := 0; i < n; i += 3 {
			if ok, err := released(d, ending(tokens[i], ref("x", i))); !ok {
				t.Errorf("%s was not released: %v", ref("x", i), err)
			}
		}
	}
}

// meanwhile runs a statement repeatedly while do runs.
func meanwhile(t *testing.T, db *dbtest.Database, sql string, do func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	other := session(t, db.URL())
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
				exec(t, other, sql)
			}
		}
	}()
	defer func() { close(done); <-ended }()
	do()
}

// Another transaction changes a row, without ending it, after a batch has begun to read it. The
// answers of the batch must still be true.
func TestABatchReportsOnlyWhatItDid(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	d.ShareAll()
	c := session(t, db.URL())
	const rounds = 50
	left := func(ref string) int64 {
		return query[int64](t, c, `SELECT count(*) FROM locks WHERE project = $1 AND ref = $2`, project, ref)[0]
	}
	meanwhile(t, db, `UPDATE locks SET waiting = '{}'`, func() {
		for n := range rounds {
			a, ref := acquire(t, d, ref("released", n)), ref("released", n)
			if ok, err := released(d, ending(a.Token, ref)); !ok || left(ref) != 0 {
				t.Fatalf("released: %v, %v, but %d are left", ok, err, left(ref))
			}
		}
		for n := range rounds {
			a, ref := acquire(t, d, ref("updated", n)), ref("updated", n)
			r := update(ref)
			r.Fence = releasing(a.Token, ref)
			if err := try(t.Context(), d, r); err != nil || left(ref) != 0 {
				t.Fatalf("updated and released: %v, but %d are left", err, left(ref))
			}
		}
	})
}

// A batch has a request of every kind. The others must not wait for a request that the batch can't
// decide at once.
func TestRequestsThatShareABatchDoNotAffectEachOther(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	c, other := session(t, db.URL()), open(t, db.URL())
	d := open(t, db.URL())
	d.ShareAll()

	setUp := func(round int) (kind func(string) string) {
		kind = func(name string) string { return fmt.Sprintf("refs/heads/%s-%d", name, round) }
		for _, name := range []string{"free", "held", "stale", "busy", "gone"} {
			if err := try(t.Context(), other, update(kind(name))); err != nil {
				t.Fatal(err)
			}
		}
		return kind
	}
	// busy makes another session hold the keys of a ref until the other requests have their
	// answers.
	busy := func(ref string, others ...func()) (all []func()) {
		_, key := postgres.KeysOf(project, ref)
		exec(t, c, `SELECT pg_advisory_lock($1)`, key)
		var answered sync.WaitGroup
		answered.Add(len(others))
		for _, o := range others {
			all = append(all, func() { o(); answered.Done() })
		}
		return append(all, func() {
			answered.Wait()
			exec(t, c, `SELECT pg_advisory_unlock($1)`, key)
		})
	}

	for round := range 5 {
		kind := setUp(round)
		acquire(t, other, kind("held"))
		acquire(t, other, kind("stale"))
		db.Exec(t, `UPDATE locks SET heartbeat = heartbeat - interval '2 hours' WHERE ref = $1`, kind("stale"))
		mine := request(kind("mine"))
		if _, err := other.Acquire(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
		take := func(r driver.AcquireRequest, refused bool, reclaimed int, value driver.Value) func() {
			return func() {
				a, err := d.Acquire(t.Context(), r)
				switch {
				case refused:
					var locked *driver.LockedError
					if !errors.As(err, &locked) || len(locked.Holders) != 1 || locked.Holders[0].Ref != r.Refs[0] {
						t.Errorf("%s: %v", r.Refs[0], err)
					}
				case err != nil || a.Token == 0 || len(a.Reclaimed) != reclaimed:
					t.Errorf("%s: %+v, %v", r.Refs[0], a, err)
				case len(a.Refs) > 1 || len(a.Refs) == 1 && (a.Refs[0].Name != r.Refs[0] || a.Refs[0].Value != value):
					t.Errorf("%s: %+v, want %q", r.Refs[0], a.Refs, value)
				}
			}
		}
		together(append(busy(kind("busy"),
			take(request(kind("free")), false, 0, v1),
			take(request(kind("new")), false, 0, driver.Unknown),
			take(request(kind("held")), true, 0, ""),
			take(request(kind("stale")), false, 1, v1),
			take(mine, false, 0, driver.Unknown)),
			take(request(kind("busy")), false, 0, v1))...)
	}

	for round := range 5 {
		kind := setUp(100 + round)
		acquire(t, other, kind("held"))
		acquire(t, other, kind("stale"))
		db.Exec(t, `UPDATE locks SET heartbeat = heartbeat - interval '2 hours' WHERE ref = $1`, kind("stale"))
		fenced := acquire(t, other, kind("fenced"))
		fence := releasing(fenced.Token, kind("fenced"))
		move := func(ref string, old driver.Value, f *driver.Fence, want error) func() {
			return func() {
				r := driver.UpdateRequest{Project: project, Origin: driver.Origin{ID: ref}, Updates: moves(old, v2, ref), Fence: f}
				if err := try(t.Context(), d, r); !errors.Is(err, want) || want == nil && err != nil {
					t.Errorf("%s: %v, want %v", ref, err, want)
				}
			}
		}
		together(append(busy(kind("busy"),
			move(kind("free"), v1, nil, nil),
			move(kind("new"), "", nil, nil),
			move(kind("gone"), v2, nil, driver.ErrMismatch),
			move(kind("missing"), v1, nil, driver.ErrMismatch),
			move(kind("held"), v1, nil, driver.ErrLocked),
			move(kind("stale"), v1, nil, nil),
			move(kind("fenced"), "", fence, nil)),
			move(kind("busy"), v1, nil, nil))...)
		for name, want := range map[string]driver.Value{"free": v2, "new": v2, "gone": v1, "held": v1, "stale": v2, "fenced": v2, "busy": v2} {
			rows, err := other.Get(t.Context(), project, []string{kind(name)})
			if err != nil || len(rows) != 1 || rows[0].Value != want {
				t.Errorf("%s: %+v, %v, want %s", name, rows, err, want)
			}
		}
		if n := len(query[string](t, c, `SELECT ref FROM locks WHERE ref IN ($1, $2)`, kind("fenced"), kind("stale"))); n != 0 {
			t.Errorf("%d locks of fenced and stale are left", n)
		}
		move(kind("fenced"), v2, fence, driver.ErrLockLost)()
	}

	for round := range 5 {
		ref := func(i int) string { return fmt.Sprintf("refs/tags/%d-%d", round, i) }
		a, b, gone := acquire(t, other, ref(1)), acquire(t, other, ref(2)), acquire(t, other, ref(3))
		release(t, other, gone, ref(3))
		let := func(a driver.Acquired, ref string, want bool) func() {
			return func() {
				if ok, err := released(d, ending(a.Token, ref)); err != nil || ok != want {
					t.Errorf("%s: %v, %v", ref, ok, err)
				}
			}
		}
		block := block(t, db, ref(2))
		others := []func(){let(a, ref(1), true), let(gone, ref(3), false)}
		var answered sync.WaitGroup
		answered.Add(len(others))
		all := []func(){let(b, ref(2), true), func() { answered.Wait(); block.end() }}
		for _, o := range others {
			all = append(all, func() { o(); answered.Done() })
		}
		together(all...)
	}
}

// A batch fails half-way, and is sent again: the effects of its first attempt were undone, and
// other transactions may have committed in between.
func TestARetriedBatchReportsOnlyItsLastAttempt(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d, c := open(t, db.URL()), session(t, db.URL())
	d.ShareAll()
	other := session(t, db.URL())
	g := newServerGate(t, c)
	exec(t, c, `CREATE SEQUENCE tries`)
	exec(t, c, `CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.ref LIKE '%/failing-%' AND nextval('tries') % 2 = 1 THEN
			`+waitAtGate+`
			RAISE EXCEPTION 'once' USING ERRCODE = '40001';
		END IF;
		RETURN NEW;
	END $$`)
	exec(t, c, `CREATE TRIGGER fail_once BEFORE INSERT ON locks FOR EACH ROW EXECUTE FUNCTION fail_once()`)

	for round := range gateRounds {
		mine, failing := ref("mine", round), ref("failing", round)
		a := acquire(t, d, mine)
		var gone, stolen bool
		together(
			func() {
				var err error
				if gone, err = released(d, ending(a.Token, mine)); err != nil {
					t.Error(err)
				}
			},
			func() { acquire(t, d, failing) },
			func() {
				g.awaited()
				deleted := make(chan bool, 1)
				go func() {
					deleted <- len(query[string](t, other, `DELETE FROM locks WHERE ref = $1 RETURNING ref`, mine)) > 0
				}()
				eventually(t, "the row is deleted, or its deletion waits for the batch", func() bool {
					return len(deleted) > 0 || query[int64](t, c, `SELECT count(*) FROM pg_locks WHERE pid = $1 AND NOT granted`, other.PgConn().PID())[0] > 0
				})
				g.open()
				stolen = <-deleted
			},
		)
		if gone == stolen {
			t.Fatalf("released: %v, deleted by another session: %v", gone, stolen)
		}
		if stolen {
			return // they shared a batch
		}
	}
	t.Error("no release shared a batch with an acquisition")
}

// The caller that released the lock is gone when the batch returns, but the waiters are not.
func TestABatchWhoseCallerGaveUpStillWakesWaiters(t *testing.T) {
	for what, end := range map[string]func(ctx context.Context, d *postgres.Driver, token driver.Token, ref string) error{
		"release": func(ctx context.Context, d *postgres.Driver, token driver.Token, ref string) error {
			_, err := d.Release(ctx, ending(token, ref))
			return err
		},
		"update": func(ctx context.Context, d *postgres.Driver, token driver.Token, ref string) error {
			r := update(ref)
			r.Fence = releasing(token, ref)
			return try(ctx, d, r)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			d, w, c := open(t, db.URL()), newWaiter(t, db.URL()), session(t, db.URL())
			d.ShareAll()
			g := newServerGate(t, c)
			exec(t, c, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					IF NEW.ref LIKE '%/slow-%' THEN
						`+waitAtGate+`
					END IF;
					RETURN NEW;
				END $$`)
			exec(t, c, `CREATE TRIGGER slow BEFORE INSERT ON locks FOR EACH ROW EXECUTE FUNCTION slow()`)
			for round := range gateRounds {
				mine := ref("mine", round)
				a := acquire(t, d, mine)
				w.refused(mine)
				ctx, giveUp := context.WithCancel(t.Context())
				var err error
				ended := make(chan struct{})
				together(
					func() { acquire(t, d, ref("slow", round)) },
					func() { err = end(ctx, d, a.Token, mine); close(ended) },
					func() {
						g.awaited()
						giveUp()
						<-ended
						g.open()
					},
				)
				if err != nil && !errors.Is(err, driver.ErrOutcomeUnknown) {
					t.Fatal(err)
				}
				row, _ := db.RowLock(t, project, mine)
				if row.Reserved() {
					w.wantWoken(mine)
				}
				if row.Reserved() && err != nil {
					return
				}
			}
			t.Error("no caller gave up on a batch that was carried out")
		})
	}
}

// gateRounds is how often a test tries to make two requests share a batch.
const gateRounds = 200

// waitAtGate waits inside the server until the gate is opened. The gate is not a lock, because the
// driver would not wait as long for a lock.
const waitAtGate = `DECLARE opened bigint; BEGIN
	SELECT last_value INTO opened FROM gate;
	WHILE opened = (SELECT last_value FROM gate) LOOP
		PERFORM pg_sleep(0.005);
	END LOOP;
END;`

type serverGate struct {
	tb   testing.TB
	conn *pgx.Conn
}

func newServerGate(tb testing.TB, c *pgx.Conn) serverGate {
	tb.Helper()
	exec(tb, c, `CREATE SEQUENCE gate`)
	exec(tb, c, `SELECT nextval('gate')`)
	return serverGate{tb, c}
}

// awaited waits until a session waits at the gate.
func (g serverGate) awaited() {
	g.tb.Helper()
	eventually(g.tb, "a session waits at the gate", func() bool {
		return query[int64](g.tb, g.conn, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()`)[0] > 0
	})
}

// open opens the gate for the sessions that wait at it.
func (g serverGate) open() {
	g.tb.Helper()
	exec(g.tb, g.conn, `SELECT nextval('gate')`)
}
