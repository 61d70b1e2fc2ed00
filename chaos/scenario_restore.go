package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
)

const (
	packsCheck = "packs in the order of their use"

	// idleTransactions are begun before each dump, and change nothing: more than a new cluster begins while the dump is restored.
	idleTransactions = `DO $$ BEGIN FOR i IN 1..5000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`
	// packOrder counts packs, and those that stand before an earlier one: their IDs are in the order of their use.
	packOrder = `SELECT count(*), count(*) FILTER (WHERE id < before) FROM (SELECT id, lag(id) OVER (ORDER BY position, id) AS before FROM packs) AS listed`
)

// newRestoreScenario makes a PostgreSQL server whose database moves into a new cluster again and again. All clients know one address, and
// never see half of a database.
func newRestoreScenario(ctx context.Context, sc *scenario, _ string) error {
	server, err := newPostgres(filepath.Join(sc.dir, "postgres"))
	if err != nil {
		return err
	}
	sc.closers = append(sc.closers, server.Kill)
	if err := server.create(ctx); err != nil {
		return err
	}
	sc.configure = func(c *siteConfig) error {
		c.URL = postgresURL(server.Address(), postgresDatabase, "application_name", "refdb")
		return nil
	}
	sc.open = func(ctx context.Context) (*refdb.DB, error) { return openForNemesis(ctx, server.url(), "") }
	sc.lockRows = func(ctx context.Context) (int, error) { return server.count(ctx, "SELECT count(*) FROM locks") }
	sc.connections = func(ctx context.Context) (int, error) { return server.count(ctx, siteConnections) }
	m := &mover{sc: sc, server: server}
	sc.packs = m.packsInOrder
	sc.faults = []fault{{"dump restored into a new cluster", m.move}}
	return nil
}

// A mover moves the database of a server into new clusters.
type mover struct {
	sc     *scenario
	server *postgresServer
	moves  int
}

// move uses a pack, stops the server, dumps its database, restores that into a new cluster, and has the server serve the new one.
func (m *mover) move(ctx context.Context, _ *rand.Rand) (detail string, err error) {
	m.moves++
	if err := m.sc.withDB(ctx, func(db *refdb.DB) error { return m.usePack(ctx, db) }); err != nil {
		return "", fmt.Errorf("use a pack: %w", err)
	}
	if err := errors.Join(m.server.Exec(ctx, postgresDatabase, idleTransactions), m.server.Kill()); err != nil {
		return "", err
	}
	// Nobody else reaches these two.
	dir := filepath.Join(m.sc.dir, "move")
	old, err := beside(filepath.Join(dir, "old"))
	if err != nil {
		return "", err
	}
	young, err := beside(filepath.Join(dir, "young"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, old.Kill(), young.Kill(), os.RemoveAll(dir)) }()
	if err := os.Rename(m.server.DataDir(), old.DataDir()); err != nil {
		return "", err
	}
	dump := filepath.Join(young.Dir(), "dump")
	for _, step := range []func() error{
		func() error { return old.Start(ctx) },
		func() error { return young.Start(ctx) },
		func() error { return young.Run(ctx, "pg_dump", "-Fc", "-f", dump, "-d", old.URL(postgresDatabase)) },
		func() error { return young.Exec(ctx, "postgres", "CREATE DATABASE "+postgresDatabase) },
		func() error { return young.Run(ctx, "pg_restore", "-d", young.URL(postgresDatabase), dump) },
		young.Stop,
		func() error { return os.Rename(young.DataDir(), m.server.DataDir()) },
		func() error { return m.server.Start(ctx) },
	} {
		if err := step(); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("number %d", m.moves), nil
}

// beside prepares a server in a new directory.
func beside(dir string) (*testserver.Postgres, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	return testserver.NewPostgres(testserver.PostgresOptions{Dir: dir, Durability: testserver.NoFsync})
}

// usePack stores a pack whose ID comes after those of all before, and uses it.
func (m *mover) usePack(ctx context.Context, db *refdb.DB) error {
	id, ref := fmt.Sprintf("pack-%06d", m.moves), fmt.Sprintf("refs/packs/%d", m.moves)
	part := driver.PackPart{Pack: driver.Pack{ID: id, Project: project, Owner: db.Owner(), Tips: []string{id}, Size: 1, Sum: "sum"}, Data: []byte{0}, Last: true}
	if err := db.Packs().Store(ctx, part); err != nil {
		return err
	}
	p, err := db.Intents().Prepare(ctx, project, []refdb.Update{{Ref: ref, New: refdb.Value(id)}}, "nemesis", intents.WithPacks(id))
	if err != nil {
		return err
	}
	return db.Intents().Finish(ctx, p, []string{ref}, nil)
}

func (m *mover) packsInOrder(ctx context.Context) (looked int, found []violation, err error) {
	var misplaced int
	err = m.server.Connect(ctx, postgresDatabase, func(c *pgx.Conn) error { return c.QueryRow(ctx, packOrder).Scan(&looked, &misplaced) })
	if misplaced > 0 {
		found = append(found, violation{Text: fmt.Sprintf("%d packs stand before one that was used earlier", misplaced)})
	}
	return looked, found, err
}
