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

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// lockWait is how long a migration waits for one of another process.
	lockWait = 30 * time.Second
	lockPoll = 100 * time.Millisecond
)

// A Migrator moves one database between versions of the schema. Of several
// processes that migrate a database at once, the others wait for the first,
// for at most 30 seconds. A Migrator itself is used by one goroutine at a time.
//
// When ctx ends, the step under way is finished and no other is begun.
type Migrator struct {
	dialect  Dialect
	lockWait time.Duration // lockWait, or longer where a test's machine may be busy
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
	return &Migrator{dialect: d, lockWait: lockWait, driver: driver, close: close}, nil
}

// NewSQL returns a Migrator for PostgreSQL or SQLite that does each operation in
// one transaction, and closes db. It needs no more than one connection. Unless settle is nil,
// each transaction begins with it: it makes the settings right that the migrations rely on.
func NewSQL(d Dialect, db *sql.DB, settle func(context.Context, *sql.Conn) error) (*Migrator, error) {
	statements, ok := statementsOf(d)
	if !ok {
		return nil, fmt.Errorf("no transactional migrations for dialect %q", d)
	}
	m := &Migrator{dialect: d, lockWait: lockWait, close: db.Close}
	m.driver = func(ctx context.Context) database.Driver {
		return &sqlDriver{ctx: ctx, db: db, statements: statements, settle: settle, lockWait: m.lockWait}
	}
	return m, nil
}

// Up brings the schema to the latest version. If it is there already, nothing
// is done and that is no error. On Spanner the tables of Gerrit's plugin are
// adopted. Any other table in the way is an error, and nothing is changed.
func (m *Migrator) Up(ctx context.Context) error {
	return m.run(ctx, NoLocks, (*migrate.Migrate).Up)
}

// Down undoes the last steps, or all if there are fewer. While a fresh lock
// stands, nothing is changed and the error is a [*HeldError]. On PostgreSQL and
// SQLite no lock can be taken between that check and the step; on Spanner a running
// program may take one.
func (m *Migrator) Down(ctx context.Context, steps int) error { return m.down(ctx, steps, FreshLocks) }

// DownForced is Down in spite of locks, except those that stand for an intent.
func (m *Migrator) DownForced(ctx context.Context, steps int) error {
	return m.down(ctx, steps, IntentLocks)
}

func (m *Migrator) down(ctx context.Context, steps int, locks LockPolicy) error {
	if steps <= 0 {
		return fmt.Errorf("migrate down by %d steps: at least 1 is needed", steps)
	}
	version, _, err := m.Version(ctx)
	if err != nil {
		return err
	}
	if version > Latest(m.dialect) {
		return fmt.Errorf("migrate down: %w", Check(m.dialect, Record{Version: version, Exists: true}))
	}
	// A target version, not a number of steps: if another process was faster this
	// is tried again, and must not go too far. Versions have no gaps.
	return m.to(ctx, version-min(version, uint(steps)), locks)
}

// To brings the schema to version, up or down, whatever locks stand; 0 is no schema at all.
func (m *Migrator) To(ctx context.Context, version uint) error { return m.to(ctx, version, NoLocks) }

func (m *Migrator) to(ctx context.Context, version uint, locks LockPolicy) error {
	if latest := Latest(m.dialect); version > latest {
		return fmt.Errorf("migrate to version %d: the latest that this program knows is %d", version, latest)
	}
	if version == 0 {
		return m.run(ctx, locks, (*migrate.Migrate).Down)
	}
	return m.run(ctx, locks, func(g *migrate.Migrate) error { return g.Migrate(version) })
}

// CheckLocks returns the [*HeldError] with which a migration down under p would fail now.
func (m *Migrator) CheckLocks(ctx context.Context, p LockPolicy) error {
	return m.inspect(ctx, "inspect the locks", func(w Inspector, version uint) error {
		locks, err := w.Held(version)
		if err != nil {
			return err
		}
		return p.Refuse(locks)
	})
}

// Counts counts what is in the tables. It reads them whole.
func (m *Migrator) Counts(ctx context.Context) (c Counts, err error) {
	err = m.inspect(ctx, "count refs and locks", func(w Inspector, _ uint) error {
		c, err = w.Counts()
		return err
	})
	return c, err
}

// inspect calls read with the schema's version, unless there is no schema.
func (m *Migrator) inspect(ctx context.Context, doing string, read func(Inspector, uint) error) error {
	d := m.driver(ctx)
	version, _, err := d.Version()
	if w, ok := d.(Inspector); !ok {
		err = errors.ErrUnsupported
	} else if err == nil && version > 0 {
		err = read(w, uint(version))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
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
// migration left dirty, after an operator checked what it really has. On Spanner
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

// run calls do, again while another process is faster.
func (m *Migrator) run(ctx context.Context, locks LockPolicy, do func(*migrate.Migrate) error) error {
	for deadline := time.Now().Add(m.lockWait); ; {
		err := m.try(ctx, deadline, locks, do)
		if !errors.Is(err, database.ErrLocked) || time.Now().After(deadline) {
			return err
		}
		if err := pause(ctx, lockPoll); err != nil {
			return err
		}
	}
}

func (m *Migrator) try(ctx context.Context, deadline time.Time, locks LockPolicy, do func(*migrate.Migrate) error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("migrate: %w", context.Cause(ctx))
	}
	src, err := iofs.New(files, string(m.dialect))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	d := &checkedDriver{Driver: m.driver(ctx), ctx: ctx, dialect: m.dialect, deadline: deadline, locks: locks}
	g, err := migrate.NewWithInstance("iofs", src, string(m.dialect), d)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	// Drivers give up first: golang-migrate's own timeout leaves a goroutine behind.
	g.LockTimeout = 2 * m.lockWait
	if err := do(g); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		return fmt.Errorf("migrate%s: %w", d.step, err)
	}
	return nil
}

// An Inspector is a golang-migrate driver that knows our tables.
type Inspector interface {
	// CheckFirst is called before the first step if no version is recorded. It fails, and
	// nothing is changed, if tables are in the way.
	CheckFirst() error

	// CheckNewTables is called before the first step up from a version. It fails, and
	// nothing is changed, if a table of another application is in the way.
	CheckNewTables(version uint) error

	// CheckLocks is called before the first step down from a version, between Lock
	// and Unlock. It, or the SetVersion that follows, fails with a *HeldError if p
	// stops for a lock.
	CheckLocks(version uint, p LockPolicy) error

	// Held returns the locks of a schema of that version.
	Held(version uint) ([]refdb.LockInfo, error)

	// Counts counts what is in the tables, which exist.
	Counts() (Counts, error)
}

// A checkedDriver adds to a driver what golang-migrate doesn't do: it ends with a
// context (GracefulStop would, but races with itself), refuses versions that
// this program doesn't know, and says in one line what to do about dirty ones.
type checkedDriver struct {
	database.Driver
	ctx      context.Context
	dialect  Dialect
	deadline time.Time
	locks    LockPolicy
	version  int    // the database's before the first step
	started  bool   // the first step has begun
	step     string // the one under way, for messages
}

func (g *checkedDriver) Version() (version int, dirty bool, err error) {
	for {
		version, dirty, err = g.Driver.Version()
		if err != nil {
			return 0, false, err
		}
		// Spanner has no lock: the process that set the mark may still be running.
		if !dirty || g.dialect != Spanner || time.Now().After(g.deadline) {
			break
		}
		if err := pause(g.ctx, lockPoll); err != nil {
			return 0, false, err
		}
	}
	if known := uint(max(version, 0)); dirty || known > Latest(g.dialect) {
		return 0, false, Check(g.dialect, Record{Version: known, Dirty: dirty, Exists: true})
	}
	g.version = version
	return version, false, nil
}

func (g *checkedDriver) SetVersion(version int, dirty bool) error {
	if dirty {
		if g.ctx.Err() != nil {
			return context.Cause(g.ctx)
		}
		if err := g.begin(version); err != nil {
			return err
		}
		g.step = fmt.Sprintf(" to version %d", max(version, 0))
	}
	return g.Driver.SetVersion(version, dirty)
}

// begin checks the database before the first step, which is to that version.
func (g *checkedDriver) begin(version int) error {
	w, ok := g.Driver.(Inspector)
	if g.started || !ok {
		return nil
	}
	g.started = true
	switch {
	case g.version < 0:
		return w.CheckFirst()
	case version < g.version:
		return w.CheckLocks(uint(g.version), g.locks)
	case version > g.version:
		return w.CheckNewTables(uint(g.version))
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
