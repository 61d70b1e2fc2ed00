package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/source/iofs"
)

const (
	// lockWait is how long a migration waits for another process's.
	lockWait = 30 * time.Second
	lockPoll = 100 * time.Millisecond
)

// A Migrator moves one database between versions of the schema. Of several
// processes that migrate a database at once, the others wait for the first,
// for at most 30 seconds. A Migrator itself is used by one goroutine at a time.
//
// When ctx ends, the step under way is finished and no other is begun.
type Migrator struct {
	dialect Dialect
	// driver returns the database for one operation, which ends with ctx.
	driver func(ctx context.Context) database.Driver
	close  func() error
}

// New returns a Migrator that works through one of golang-migrate's drivers,
// and closes it. The driver's Lock, or a SetVersion that fails with
// [database.ErrLocked], must keep other processes out.
func New(d Dialect, db database.Driver) (*Migrator, error) {
	return NewFor(d, func(context.Context) database.Driver { return db }, db.Close)
}

// NewFor is New for a driver whose operations heed a context: driver returns it
// for one operation of the Migrator.
func NewFor(d Dialect, driver func(ctx context.Context) database.Driver, close func() error) (*Migrator, error) {
	if Latest(d) == 0 {
		return nil, fmt.Errorf("no migrations for dialect %q", d)
	}
	return &Migrator{dialect: d, driver: driver, close: close}, nil
}

// NewSQL returns a Migrator for PostgreSQL or SQLite that does each operation in
// one transaction, and closes db. It needs no more than one connection.
func NewSQL(d Dialect, db *sql.DB) (*Migrator, error) {
	words, ok := dialectWords(d)
	if !ok {
		return nil, fmt.Errorf("no transactional migrations for dialect %q", d)
	}
	return &Migrator{
		dialect: d,
		driver:  func(ctx context.Context) database.Driver { return &sqlDriver{ctx: ctx, db: db, words: words} },
		close:   db.Close,
	}, nil
}

// Up brings the schema to the latest version. If it is there already, nothing
// is done and that is no error. Tables that exist are adopted.
func (m *Migrator) Up(ctx context.Context) error {
	return m.run(ctx, (*migrate.Migrate).Up)
}

// Down undoes the last steps, or all if there are fewer.
func (m *Migrator) Down(ctx context.Context, steps int) error {
	if steps <= 0 {
		return fmt.Errorf("migrate down by %d steps: at least 1 is needed", steps)
	}
	version, _, err := m.Version(ctx)
	if err != nil {
		return err
	}
	if version > Latest(m.dialect) {
		return fmt.Errorf("migrate down: %w", Check(m.dialect, version, false, true))
	}
	// By a target, not by steps: after another process was faster it is tried
	// again, and must not go too far. Versions have no gaps.
	return m.To(ctx, version-min(version, uint(steps)))
}

// To brings the schema to version, up or down; 0 is no schema at all.
func (m *Migrator) To(ctx context.Context, version uint) error {
	if latest := Latest(m.dialect); version > latest {
		return fmt.Errorf("migrate to version %d: the latest that this program knows is %d", version, latest)
	}
	if version == 0 {
		return m.run(ctx, (*migrate.Migrate).Down)
	}
	return m.run(ctx, func(g *migrate.Migrate) error { return g.Migrate(version) })
}

// Version returns the version of the schema, 0 if there is none. It is dirty
// while a step to that version runs on a database that can't do it in one
// transaction, and after such a step failed.
func (m *Migrator) Version(ctx context.Context) (version uint, dirty bool, err error) {
	v, dirty, err := m.driver(ctx).Version()
	if err != nil {
		return 0, false, fmt.Errorf("read schema version: %w", err)
	}
	return uint(max(v, 0)), dirty, nil
}

// Force records that the schema has that version, 0 for none, and is not
// dirty. It changes nothing else: it is for a database that an interrupted
// migration left dirty, after somebody looked at what it really has. On Spanner
// and PostgreSQL every step up may be repeated, so that the version before the
// interrupted step is a safe answer; SQLite is never left dirty.
func (m *Migrator) Force(ctx context.Context, version uint) error {
	if latest := Latest(m.dialect); version > latest {
		return fmt.Errorf("force schema version %d: the latest is %d", version, latest)
	}
	d := m.driver(ctx)
	if err := d.Lock(); err != nil {
		return fmt.Errorf("force schema version %d: %w", version, err)
	}
	v := int(version)
	if version == 0 {
		v = database.NilVersion
	}
	err := d.SetVersion(v, false)
	if err = errors.Join(err, d.Unlock()); err != nil {
		return fmt.Errorf("force schema version %d: %w", version, err)
	}
	return nil
}

// Close closes the database.
func (m *Migrator) Close() error { return m.close() }

// run calls do, again if another process was faster.
func (m *Migrator) run(ctx context.Context, do func(*migrate.Migrate) error) error {
	for deadline := time.Now().Add(lockWait); ; {
		err := m.try(ctx, deadline, do)
		if !errors.Is(err, database.ErrLocked) || time.Now().After(deadline) {
			return err
		}
		if err := pause(ctx, lockPoll); err != nil {
			return err
		}
	}
}

func (m *Migrator) try(ctx context.Context, deadline time.Time, do func(*migrate.Migrate) error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("migrate: %w", context.Cause(ctx))
	}
	src, err := iofs.New(files, string(m.dialect))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	d := &guard{Driver: m.driver(ctx), ctx: ctx, dialect: m.dialect, deadline: deadline}
	g, err := migrate.NewWithInstance("iofs", src, string(m.dialect), d)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	// Drivers give up by themselves: when golang-migrate does, it leaves a goroutine behind.
	g.LockTimeout = 2 * lockWait
	if err := do(g); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		return fmt.Errorf("migrate%s: %w", d.step, err)
	}
	return nil
}

// guard adds to a driver what golang-migrate doesn't do: it ends with a
// context (GracefulStop would, but races with itself), refuses versions that
// this program doesn't know, and says in one line what to do about dirty ones.
type guard struct {
	database.Driver
	ctx      context.Context
	dialect  Dialect
	deadline time.Time
	step     string // the one under way, for messages
}

func (g *guard) Version() (version int, dirty bool, err error) {
	for {
		version, dirty, err = g.Driver.Version()
		if err != nil {
			return 0, false, err
		}
		// Spanner has no lock: whoever set the mark may still be at work.
		if !dirty || g.dialect != Spanner || time.Now().After(g.deadline) {
			break
		}
		if err := pause(g.ctx, lockPoll); err != nil {
			return 0, false, err
		}
	}
	if known := uint(max(version, 0)); dirty || known > Latest(g.dialect) {
		return 0, false, Check(g.dialect, known, dirty, true)
	}
	return version, false, nil
}

func (g *guard) SetVersion(version int, dirty bool) error {
	if dirty {
		if g.ctx.Err() != nil {
			return context.Cause(g.ctx)
		}
		g.step = fmt.Sprintf(" to version %d", max(version, 0))
	}
	return g.Driver.SetVersion(version, dirty)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
