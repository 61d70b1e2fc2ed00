package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/dburl"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// ShareAll has every request about a single ref queue for a shared round trip, even if it is alone.
func (d *Driver) ShareAll() {
	d.batcher.ShareAll()
}

// BePatient has beats and releases wait for a connection however long that takes, rather than open
// a spare one. It is called before the first request.
func (d *Driver) BePatient() { d.pools.SpareAfter = 10 * time.Minute }

// KeysOf returns the keys of a project and of a ref.
func KeysOf(project, ref string) (int64, int64) {
	return int64(keyOf(project, "")), int64(keyOf(project, ref))
}

// OpenDialing is [Open] with connections that dial makes.
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

// RoundTrip makes a round trip of statements without arguments, and has read take each answer.
func (d *Driver) RoundTrip(ctx context.Context, read func(pgx.Rows) error, statements ...string) error {
	work := roundtrip.Write("make a round trip")
	for _, sql := range statements {
		work = work.Query(sql, read)
	}
	return d.pools.Do(ctx, work)
}

// Leave executes a statement as another client of the connection would, and leaves behind what it
// sets.
func (d *Driver) Leave(ctx context.Context, sql string) error {
	conn, err := d.pools.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	_, err = conn.Conn().PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// RoundTripAbout makes a round trip of statements that all have that argument.
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

// ConnectsUpTo returns how many connections a doctor says the driver may have.
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

// SetLoginPause sets how long no login is attempted after the server has refused one.
func (d *Driver) SetLoginPause(pause time.Duration) { d.pools.SetLoginPause(pause) }
