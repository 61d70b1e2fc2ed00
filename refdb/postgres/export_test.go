package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/dburl"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// ShareAll makes every request about a single ref queue for a shared round trip, even if it is
// alone.
func (d *Driver) ShareAll() {
	d.batcher.ShareAll()
}

// BePatient makes beats and releases wait for a shared connection, however long that takes, rather
// than open a spare one. It has to be called before the first request.
func (d *Driver) BePatient() { d.pools.SpareAfter = 10 * time.Minute }

// KeysOf returns the keys of a project and of a ref.
func KeysOf(project, ref string) (int64, int64) {
	return int64(keyOf(project, "")), int64(keyOf(project, ref))
}

// OpenDialing is [Open] with connections made by dial.
func OpenDialing(ctx context.Context, address string, dial pgconn.DialFunc) (*Driver, error) {
	config, given, err := dburl.Parse(address)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.DialFunc = roundtrip.NeverCancel(dial)
	tune(config, given, roundtrip.Direct)
	pools, err := roundtrip.Open(ctx, config, roundtrip.Direct)
	if err != nil {
		return nil, err
	}
	if err := examine(ctx, pools); err != nil {
		pools.Close()
		return nil, err
	}
	return newDriver(pools), nil
}

// RoundTrip makes a round trip of statements without arguments, and passes each answer to read.
func (d *Driver) RoundTrip(ctx context.Context, read func(pgx.Rows) error, statements ...string) error {
	work := roundtrip.Write("make a round trip")
	for _, sql := range statements {
		work = work.Query(sql, read)
	}
	return d.pools.Do(ctx, work)
}

// Leave executes a statement as another client of the connection would, and leaves its settings
// behind.
func (d *Driver) Leave(ctx context.Context, sql string) error {
	conn, err := d.pools.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	_, err = conn.Conn().PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// RoundTripAbout makes a round trip of statements that all have the argument arg.
func (d *Driver) RoundTripAbout(ctx context.Context, arg string, statements ...string) error {
	work := roundtrip.Write("make a round trip")
	for _, sql := range statements {
		work = work.Exec(sql, arg)
	}
	return d.pools.Do(ctx, work)
}

// Connections returns how many connections the driver has made so far.
func (d *Driver) Connections() int64 { return d.pools.Stat().NewConnsCount() }

// Idle returns how many connections of the pool are free, or could be made.
func (d *Driver) Idle() int32 {
	return d.pools.Config().MaxConns - d.pools.Stat().AcquiredConns()
}

// ConnectsUpTo returns the maximum number of connections that Diagnose reports.
func (d *Driver) ConnectsUpTo() int {
	return d.pools.MaxConns() + listenConns
}

// The statements that read the history, for their plans.
var (
	PastOfRangeSQL = pastOfRangeSQL
	LogOfRefSQL    = logOfRefSQL
	ChangesSQL     = changesOfProjectSQL
	NewestSQL      = newestSQL
	TipSQL         = tipSQL
	PacksSQL       = packsSQL
	PositionAtSQL  = positionAtSQL
	LookSQL        = lookSQL
	HoldingSQL     = holdingSQL
)

// SetLoginPause sets how long logins are suspended after the server has refused one.
func (d *Driver) SetLoginPause(pause time.Duration) { d.pools.SetLoginPause(pause) }
