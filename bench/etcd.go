package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
)

// An etcdServer is one etcd member inside this process. It syncs its log to
// disk before it answers, as it does by default.
type etcdServer struct {
	server   *embed.Etcd
	endpoint string
	count    int // of key spaces
}

// bulkOps is how many operations the server takes in a transaction; by default 128.
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
		port, err := freePort()
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

// keySpace returns a prefix that nobody has used.
func (s *etcdServer) keySpace() string {
	s.count++
	return fmt.Sprintf("/bench%d/", s.count)
}

func dialEtcd(ctx context.Context, endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Context: ctx, Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second, MaxCallSendMsgSize: 16 << 20})
}

// withSession calls do with a client and a session: a lease that all mutexes
// of a process share, kept alive in the background.
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
