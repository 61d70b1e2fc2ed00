package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"time"

	"cirello.io/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lib/pq" // the driver that pglock's documentation uses
	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
)

// An etcdServer is one etcd member inside this process. It syncs its log to
// disk before it answers, as it does by default.
type etcdServer struct {
	server   *embed.Etcd
	endpoint string
	count    int // of key spaces
}

// bulkOps is how many operations the server accepts in a transaction. The default is 128.
const bulkOps = 20_000

func startEtcd(dir string) (*etcdServer, error) {
	config := embed.NewConfig()
	config.Dir = filepath.Join(dir, "etcd")
	config.LogLevel = "error"
	config.LogOutputs = []string{filepath.Join(dir, "etcd.log")}
	config.MaxTxnOps = bulkOps
	config.MaxRequestBytes = 16 << 20
	var urls [2]url.URL
	for i := range urls {
		port, err := testserver.FreePort()
		if err != nil {
			return nil, err
		}
		urls[i] = url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = urls[:1], urls[:1]
	config.ListenPeerUrls, config.AdvertisePeerUrls = urls[1:], urls[1:]
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-server.Server.ReadyNotify():
		return &etcdServer{server: server, endpoint: urls[0].Host}, nil
	case err := <-server.Err():
		server.Close()
		return nil, fmt.Errorf("start etcd: %w", err)
	case <-time.After(5 * time.Minute):
		server.Close()
		return nil, errors.New("start etcd: it isn't ready after 5 minutes")
	}
}

func (s *etcdServer) stop() { s.server.Close() }

func etcdVersion() string { return version.Version }

// keySpace returns a prefix that was never used.
func (s *etcdServer) keySpace() string {
	s.count++
	return fmt.Sprintf("/bench%d/", s.count)
}

func dialEtcd(ctx context.Context, endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Context: ctx, Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second, MaxCallSendMsgSize: 16 << 20})
}

// withSession calls do with a session: a lease that all mutexes of a process
// share, kept alive in the background.
func withSession(ctx context.Context, endpoint string, do func(*concurrency.Session) (sample, error)) (_ sample, err error) {
	client, err := dialEtcd(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	session, err := concurrency.NewSession(client)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	return do(session)
}

// openPglock returns a client on the database at url, and what closes the client.
func openPglock(url string, lease time.Duration) (*pglock.Client, func() error, error) {
	db, err := sql.Open("postgres", url)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(int(poolSize()))
	db.SetMaxIdleConns(int(poolSize()))
	client, err := pglock.New(db, pglock.WithLeaseDuration(lease), pglock.WithHeartbeatFrequency(lease/4), pglock.WithOwner(owner))
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return client, db.Close, nil
}

// floorTables have the columns that the protocol needs, the product's
// fillfactor, the keys that a ref's history and a feed of all or of one project need, and nothing else.
const floorTables = `
CREATE TABLE floor_locks (
    project   text COLLATE "C" NOT NULL,
    ref       text COLLATE "C" NOT NULL,
    heartbeat timestamptz NOT NULL,
    token     timestamptz NOT NULL,
    owner     text COLLATE "C" NOT NULL,
    PRIMARY KEY (project, ref)
) WITH (fillfactor = 50);
CREATE TABLE floor_refs (
    project text COLLATE "C" NOT NULL,
    ref     text COLLATE "C" NOT NULL,
    value   text COLLATE "C" NOT NULL,
    time    timestamptz,
    PRIMARY KEY (project, ref)
) WITH (fillfactor = 80);
CREATE TABLE floor_history (
    project  text COLLATE "C" NOT NULL,
    ref      text COLLATE "C" NOT NULL,
    position bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    old      text COLLATE "C" NOT NULL,
    new      text COLLATE "C" NOT NULL,
    time     timestamptz NOT NULL,
    PRIMARY KEY (project, ref, position)
);
CREATE INDEX ON floor_history (position, project, ref);
CREATE INDEX ON floor_history (project, position, ref)`

const (
	floorLockSQL = `INSERT INTO floor_locks (project, ref, heartbeat, token, owner)
		VALUES ($1, $2, clock_timestamp(), clock_timestamp(), $3) ON CONFLICT DO NOTHING RETURNING token`
	floorReleaseSQL = `DELETE FROM floor_locks WHERE project = $1 AND ref = $2 AND token = $3`
	floorPutSQL     = `UPDATE floor_refs SET value = $4, time = clock_timestamp() WHERE project = $1 AND ref = $2 AND value = $3`

	// The value and the row of its history, in one statement.
	floorRecordSQL = `WITH changed AS (` + floorPutSQL + ` RETURNING time)
		INSERT INTO floor_history (project, ref, old, new, time) SELECT $1, $2, $3, $4, time FROM changed`
)

var errTaken = errors.New("somebody else holds it")

// A floor is the least that a durable lock or compare-and-put costs on
// PostgreSQL: one prepared statement, which is its own transaction. It does not
// check for others, wake up waiters, or resolve lost replies.
type floor struct {
	db querier
}

// A querier is a pool, or one of its connections.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// openFloor creates the tables in the database at url. It also returns what closes
// the connections.
func openFloor(ctx context.Context, url string) (*floor, func(), error) {
	pool, err := floorPool(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	if _, err := pool.Exec(ctx, floorTables, pgx.QueryExecModeSimpleProtocol); err != nil {
		pool.Close()
		return nil, nil, fmt.Errorf("create the floor's tables: %w", err)
	}
	return &floor{pool}, pool.Close, nil
}

// floorPool has the size and the planner's settings of the product's driver.
func floorPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize()
	for name, value := range map[string]string{"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"} {
		config.ConnConfig.RuntimeParams[name] = value
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// poolSize is the product's default for PostgreSQL.
func poolSize() int32 { return int32(max(16, 2*runtime.NumCPU())) }

func (f *floor) lock(ctx context.Context, ref string) (token time.Time, err error) {
	err = f.db.QueryRow(ctx, floorLockSQL, project, ref, owner).Scan(&token)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errTaken
	}
	return token, err
}

func (f *floor) release(ctx context.Context, ref string, token time.Time) error {
	return one(f.db.Exec(ctx, floorReleaseSQL, project, ref, token))
}

func (f *floor) get(ctx context.Context, ref string) (value string, err error) {
	err = f.db.QueryRow(ctx, `SELECT value FROM floor_refs WHERE project = $1 AND ref = $2`, project, ref).Scan(&value)
	return value, err
}

func (f *floor) put(ctx context.Context, ref, old, new string) error {
	return one(f.db.Exec(ctx, floorPutSQL, project, ref, old, new))
}

// record is put with a row of history.
func (f *floor) record(ctx context.Context, ref, old, new string) error {
	return one(f.db.Exec(ctx, floorRecordSQL, project, ref, old, new))
}

// seed inserts refs that hold the value.
func (f *floor) seed(ctx context.Context, refs []string, value string) error {
	_, err := f.db.Exec(ctx, `INSERT INTO floor_refs (project, ref, value, time)
		SELECT $1, ref, $3, clock_timestamp() FROM unnest($2::text[]) AS ref`, project, refs, value)
	return err
}

// one returns an error unless exactly one row was affected.
func one(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("%d rows were affected, not one", tag.RowsAffected())
	}
	return err
}
