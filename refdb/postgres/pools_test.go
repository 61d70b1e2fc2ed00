package postgres_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// Even if requests that wait for something else occupy all connections of the pool.
func TestBeatsAndReleasesNeverWaitForAConnection(t *testing.T) {
	t.Parallel()
	for path, url := range paths {
		for _, conns := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s, %d connections", path, conns), func(t *testing.T) {
				t.Parallel()
				db := dbtest.Postgres(t)
				d := open(t, with(t, url(t, db), "pool_max_conns", fmt.Sprint(conns)))
				few, many := some("refs/heads/few/", 2), some("refs/heads/many/", 600)
				ofOne, ofFew, ofMany := acquire(t, d, mainRef), acquire(t, d, few...), acquire(t, d, many...)

				c := session(t, db.URL())
				exec(t, c, `BEGIN`)
				exec(t, c, `LOCK TABLE refs`) // as some migrations do
				ctx, cancel := context.WithCancel(t.Context())
				var stuck sync.WaitGroup
				defer stuck.Wait()
				defer exec(t, c, `COMMIT`)
				defer cancel()
				for i := range 100 {
					stuck.Go(func() {
						if i%2 == 0 {
							_, _ = d.Get(ctx, project, []string{otherRef})
						} else {
							_ = try(ctx, d, update(fmt.Sprint("refs/heads/stuck", i)))
						}
					})
				}
				eventually(t, "all connections are in use", func() bool { return d.Idle() == 0 })

				soon, cancelSoon := context.WithTimeout(t.Context(), patience)
				defer cancelSoon()
				for what, beaten := range map[string][]driver.LockID{
					"one": ids(ofOne.Token, mainRef), "few": ids(ofFew.Token, few...), "many": ids(ofMany.Token, many...),
				} {
					results, err := d.Beat(soon, beaten)
					if err != nil || slices.ContainsFunc(results, func(r driver.BeatResult) bool { return r != driver.BeatRenewed }) {
						t.Errorf("a beat of %s: %v", what, err)
					}
				}
				for what, r := range map[string]driver.ReleaseRequest{"one": ending(ofOne.Token, mainRef), "few": ending(ofFew.Token, few...)} {
					if released, err := d.Release(soon, r); err != nil || released.Missing != nil {
						t.Errorf("a release of %s: %v, %v", what, released, err)
					}
				}
			})
		}
	}
}

// A standstill blocks the next requests for a connection until their contexts end.
type standstill struct{ next atomic.Int64 }

func (s *standstill) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	if s.next.Add(-1) >= 0 {
		<-ctx.Done()
	}
	return ctx
}

func (*standstill) TraceAcquireEnd(context.Context, *pgxpool.Pool, pgxpool.TraceAcquireEndData) {}

func (*standstill) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (*standstill) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// On a machine that is busy otherwise, a beat would use another connection, and one more round trip
// to prepare its statements, although a connection was free.
func TestAFreeConnectionIsTakenEvenAfterALongPause(t *testing.T) {
	t.Parallel()
	address := with(t, dbtest.Postgres(t).URL(), "pool_max_conns", "1")
	// spareUsed reports whether a round trip used the spare connection after the given number of
	// standstills.
	spareUsed := func(on roundtrip.Pool, times int) bool {
		t.Helper()
		config, err := pgxpool.ParseConfig(address)
		if err != nil {
			t.Fatal(err)
		}
		var still standstill
		config.ConnConfig.Tracer = &still
		pools, err := roundtrip.Open(t.Context(), config, roundtrip.Direct)
		if err != nil {
			t.Fatal(err)
		}
		defer pools.Close()
		send := func(on roundtrip.Pool) {
			t.Helper()
			if err := pools.Do(t.Context(), roundtrip.Write("test").On(on).Exec(`SELECT 1`)); err != nil {
				t.Fatal(err)
			}
		}
		send(roundtrip.Requests)
		still.next.Store(int64(times))
		send(on)
		if still.next.Load() >= 0 && times > 0 {
			t.Fatal("no connection was wanted")
		}
		return pools.Stats()[on].Acquired > 0
	}
	for _, on := range []roundtrip.Pool{roundtrip.Beats, roundtrip.Releases} {
		for times := range 2 {
			untilInTime(t, func() (late bool) { return spareUsed(on, times) }) // a busy machine causes standstills, too
		}
		if !spareUsed(on, 2) { // the shared connections are not tried for ever
			t.Errorf("after 2 standstills the spare connection %d was not used", on)
		}
	}
}

// A release shares its round trip with requests that are stuck.
func TestAReleaseIsNotDelayedByOthersOfItsBatch(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, with(t, db.URL(), "pool_max_conns", "1"))
	d.ShareAll()
	a := acquire(t, d, mainRef)
	c := session(t, db.URL())
	exec(t, c, `BEGIN`)
	exec(t, c, `LOCK TABLE refs`)
	ctx, cancel := context.WithCancel(t.Context())
	var stuck sync.WaitGroup
	defer stuck.Wait()
	defer exec(t, c, `COMMIT`)
	defer cancel()
	for i := range 20 {
		stuck.Go(func() { _ = try(ctx, d, update(fmt.Sprint("refs/heads/stuck", i))) })
	}
	eventually(t, "the updates are stuck", func() bool { return d.Idle() == 0 })
	soon, cancelSoon := context.WithTimeout(t.Context(), patience)
	defer cancelSoon()
	if released, err := d.Release(soon, ending(a.Token, mainRef)); err != nil || released.Missing != nil {
		t.Errorf("%v, %v", released, err)
	}
}

// The limit is the one that OPERATIONS.md and refdbctl doctor state.
func TestADriverOpensNoMoreConnectionsThanItsLimit(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	var clients dialer
	d, err := postgres.OpenDialing(t.Context(), with(t, db.URL(), "pool_max_conns", "4"), clients.dial)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	a := acquire(t, d, mainRef)
	if _, err := d.Beat(t.Context(), ids(a.Token, mainRef)); err != nil {
		t.Fatal(err)
	}
	if n := clients.most.Load(); n < 1 || n > 2 {
		t.Errorf("%d connections for a lock and a beat", n)
	}
	listening := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started := sync.OnceFunc(func() { close(listening) })
	go func() {
		for ctx.Err() == nil { // on a busy machine the first notification may be late
			_ = d.Listen(ctx, "channel", started, func(driver.Wakeup) {})
		}
	}()
	<-listening
	c := session(t, db.URL())
	exec(t, c, `BEGIN`)
	exec(t, c, `LOCK TABLE refs`)
	var work sync.WaitGroup
	for i := range 60 {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Millisecond) // so that some requests are given up
			defer cancel()
			_ = try(ctx, d, update(fmt.Sprint("refs/heads/stuck", i)))
			_, _ = d.Beat(ctx, ids(a.Token, mainRef))
			_, _ = d.Release(ctx, ending(a.Token+1, mainRef))
		})
	}
	work.Wait()
	exec(t, c, `COMMIT`)
	if most, says := clients.most.Load(), int64(d.ConnectsUpTo()); most > says || says != 4+3 {
		t.Errorf("%d connections, want at most %d", most, says)
	}
}

// A dialer counts connections until the client closes them; the server may notice that later.
type dialer struct{ now, most atomic.Int64 }

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	now := d.now.Add(1)
	for most := d.most.Load(); now > most && !d.most.CompareAndSwap(most, now); most = d.most.Load() {
	}
	return &dialed{Conn: c, ended: sync.OnceFunc(func() { d.now.Add(-1) })}, nil
}

type dialed struct {
	net.Conn
	ended func()
}

func (c *dialed) Close() error {
	c.ended()
	return c.Conn.Close()
}
