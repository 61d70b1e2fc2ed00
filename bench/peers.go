package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"cirello.io/pglock"
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
	case <-time.After(30 * time.Second):
		server.Close()
		return nil, errors.New("start etcd: it isn't ready after 30s")
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
